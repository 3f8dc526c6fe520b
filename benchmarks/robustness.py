"""What robust rules, attacks and R-FedEBA+ cost beside plain rounds, in one interleaved run.

    python -m benchmarks.robustness --models=mlp

Columns: the round's time, and its time over that of the same round without it: FedAvg without a rule, FedAvg without an
attack, FedEBA+ for R-FedEBA+. Rules withstand a fifth of the cohort, and a fifth of the clients attack. The server's
rate is 0: some attacks would make the model diverge within few rounds, and a round of a diverged run does other work.
--out: a JSON file.
"""

from typing import Any

import numpy as np
from absl import flags

from benchmarks.tools import measure
from benchmarks.tools.work import CLASSES, Work, compile_made, make_round, random_data
from experiments.command import cli
from experiments.execution import session
from fedeba_jax import aggregation, attacks
from fedeba_jax.aggregation import Rule
from fedeba_jax.attacks import Attack

FLAGS = flags.FLAGS
for _flag in ("models", "clients", "cohort_size", "steps", "batch_size", "repeats", "seconds", "out"):
    flags.declare_key_flag(_flag)

SHARE = 0.2  # of the clients
ROBUST = {"robust_fedeba_plus": "fedeba_plus"}  # and what each is measured beside


def rules(n: int) -> dict[str, Rule]:
    """All rules, and what may come before one, for a cohort of n."""
    f = int(SHARE * n)
    return {
        "mean": aggregation.mean(),
        "median": aggregation.median(),
        "trimmed_mean": aggregation.trimmed_mean(f),
        "meamed": aggregation.meamed(f),
        "geometric_median": aggregation.geometric_median(),
        "krum": aggregation.krum(f),
        "multi_krum": aggregation.multi_krum(f),
        "centered_clipping": aggregation.centered_clipping(),
        "mda": aggregation.mda(f),
        "nnm, trimmed_mean": aggregation.trimmed_mean(f, first=aggregation.nnm(f)),
        "bucketing, mean": aggregation.mean(first=aggregation.bucketing(2)),
        "clipping, mean": aggregation.mean(first=aggregation.clipping(1.0)),
        "arc, mean": aggregation.mean(first=aggregation.arc(f)),
    }


def attacked() -> dict[str, Attack]:
    """All attacks, where the server takes a weighted sum."""
    return {
        "label_flipping": attacks.label_flipping(CLASSES, SHARE),
        "sign_flipping": attacks.sign_flipping(SHARE),
        "scaling": attacks.scaling(SHARE),
        "inner_product_manipulation": attacks.inner_product_manipulation(SHARE),
        "a_little_is_enough": attacks.a_little_is_enough(SHARE),
        "mimic": attacks.mimic(SHARE),
        "gaussian": attacks.gaussian(SHARE),
        "inf": attacks.inf(SHARE),
        "opt_ipm": attacks.opt_ipm(None, SHARE),
        "opt_alie": attacks.opt_alie(None, SHARE),
    }


def measure_model(model: str) -> tuple[list[dict[str, Any]], dict[str, measure.Ratio]]:
    work = measure.work_of(model, "fedavg")
    data = random_data(work)
    plain: dict[str, tuple[Work, dict[str, Any]]] = {
        name: (measure.work_of(model, name), {}) for name in ("fedavg", *ROBUST, *ROBUST.values())
    }
    with_rules = {f"fedavg, {name}": (work, {"rule": rule}) for name, rule in rules(work.cohort).items()}
    under_attack = {f"fedavg under {name}": (work, {"attack": attack}) for name, attack in attacked().items()}
    for name in ("median", "trimmed_mean", "meamed", "nnm, trimmed_mean"):  # they cannot be searched by products
        rule = rules(work.cohort)[name]
        under_attack[f"fedavg, {name}, under opt_alie"] = work, {"rule": rule, "attack": attacks.opt_alie(rule, SHARE)}
    made = {
        name: compile_made(make_round(one, **values, server_rate=0.0), data, one.client_map)
        for name, (one, values) in (plain | with_rules | under_attack).items()
    }
    seconds = measure.interleaved({name: compiled.run for name, compiled in made.items()})
    beside = ROBUST | dict.fromkeys([*with_rules, *under_attack], "fedavg")
    ratios = {name: measure.ratio(seconds[name], seconds[other], "lower") for name, other in beside.items()}
    rows = [
        {"model": model, "round": name, "beside": beside[name], "seconds": float(np.median(seconds[name]))}
        | {"over": ratio._asdict()}
        for name, ratio in ratios.items()
    ]
    return rows, {f"{model} {name}: round / {beside[name]}": ratio for name, ratio in ratios.items()}


def main() -> None:
    session.set_up()
    measure.warn_if_busy()
    rows: list[dict[str, Any]] = []
    ratios: dict[str, measure.Ratio] = {}
    for model in FLAGS.models:
        new, found = measure_model(model)
        rows, ratios = rows + new, ratios | found
        shown = [
            [row["round"], f"{row['seconds'] * 1e3:.1f}", row["beside"], str(measure.Ratio(**row["over"]))]
            for row in new
        ]
        print(measure.table([model, "ms", "beside", "time over it"], shown), flush=True)
    measure.write(FLAGS.out, "robustness", rows, ratios)


if __name__ == "__main__":
    cli.run(main)
