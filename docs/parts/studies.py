"""The tables of studies that are no preset of the paper: tuning on equal terms, and methods under attack."""

import json
from typing import Any

from docs.parts import NOTHING, ROOT
from experiments.paper import evidence
from experiments.paper.comparison import verdict_text
from experiments.reporting import robustness, tuning
from experiments.reporting.attacked import NO_ATTACK, same_clients
from experiments.reporting.columns import COLUMNS
from experiments.reporting.loading import load
from experiments.reporting.series import grouped
from experiments.reporting.statistics import judged, paired
from experiments.reporting.tables import grid, plain_markdown

RESULTS = ROOT / evidence.RESULTS_DIR
TUNING = RESULTS / "tuning_fashion_mnist"
PRESET = ROOT / "experiments" / "configs" / "tune_fashion_mnist.flags"


def under_attack(folder: str, title: str) -> str:
    """The worst cases of a committed study, and what collapses in it."""
    series = load([RESULTS / folder])
    return robustness.report(robustness.settings_of(series), title).strip()


def tuned() -> str:
    """The chosen points and the defaults, of the methods that are tuned so far."""
    content = tuning_record()
    if not content:
        return NOTHING
    methods, planned = tuning.from_json(content), flags()["algorithm"].split(",")
    rounds = next(iter(load([TUNING / "test"]))).settings["rounds"]
    left = [f"`{name}`" for name in planned if name not in content["methods"]]
    notes = tuning.notes(methods, rounds, content["test_seeds"])
    notes += [f"not tuned yet, of {len(planned)} methods: {', '.join(left)}; with them p-values are corrected over "
              "more rows, so that verdicts may become weaker"] * bool(left)  # fmt: skip
    title = f"{content['task']}: {content['budget']} points of each method, chosen on seed {content['seeds'][0]}"
    return plain_markdown(tuning.table(title, methods, notes)).strip()


GUARDED, UNGUARDED = "robust_fedeba_plus", "fedeba_plus"


def price_of_guards() -> str:
    """R-FedEBA+ beside FedEBA+ where nobody attacks: the untuned test runs of both."""
    content = tuning_record()
    known = {one.algorithm: one.figures[tuning.UNTUNED] for one in tuning.from_json(content)} if content else {}
    if not {GUARDED, UNGUARDED} <= known.keys():
        return NOTHING
    measures = ("mean", "variance", "variance_corrected", "worst5")
    rows = [
        (f"`{name}`", *(tuning.figure_text(key, known[name][key]) for key in measures))
        for name in ("fedavg", UNGUARDED, GUARDED)
    ]
    differences = []
    for key in measures:
        compared = paired(known[GUARDED][key], known[UNGUARDED][key], higher=COLUMNS[key].higher_is_better)
        differences += [verdict_text(one, COLUMNS[key].digits) for one in judged([compared]) if one]
    head = ("at its defaults", *(COLUMNS[key].title for key in measures))
    return grid(head, [*rows, (f"`{GUARDED}` against `{UNGUARDED}`", *differences)])


LIMITS = ("loss_clip", "weight_cap")
TRADED = ("robustness_guards", "robustness_fashion_mnist", "robustness_more")
TO_PASS = {
    "label_flipping(loss=max_plus)": "label flippers",
    "scaling(loss=max_plus, drawn=true)": "exploded updates",
}


def what_guards_trade() -> str:
    """R-FedEBA+ with other limits on losses and weights: without an attack, and under two that pass its guards best."""
    own = [one for one in evidence.gather(RESULTS / name for name in TRADED).values() if one.algorithm == GUARDED]
    rows = []
    for limits, runs in sorted(grouped(own, lambda one: tuple(one.hparams[name] for name in LIMITS)).items()):
        (setting,) = robustness.settings_of(runs)
        without = setting.outcomes[NO_ATTACK]
        before = [f"{without.figure(key):.{COLUMNS[key].digits}f}" for key in ("mean", "variance", "worst5")]
        pairs = [same_clients(setting.outcomes[attack, 0.2], without) for attack in TO_PASS]
        after = [
            " → ".join(f"{one:.1f}" for one in pair[key]) for pair in pairs for key in ("mean", "minority_accuracy")
        ]
        rows.append((*(f"{limit:g}" for limit in limits), *before, *after))
    under = [f"{what}, {told}" for told in TO_PASS.values() for what in ("accuracy", "minority")]
    return grid((*(f"`{name}`" for name in LIMITS), "accuracy", "variance", "worst 5 %", *under), rows)


def tuning_record() -> dict[str, Any]:
    """The committed tune.json; empty if there is none."""
    path = TUNING / "tune.json"
    return json.loads(path.read_text()) if path.exists() else {}


def flags() -> dict[str, str]:
    """What the preset of the tuning asks for, by flag."""
    lines = [line for line in PRESET.read_text().splitlines() if line.startswith("--")]
    return dict(line.removeprefix("--").split("=", 1) for line in lines)
