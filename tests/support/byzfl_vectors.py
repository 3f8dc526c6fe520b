"""What byzfl 0.0.11 gives: made once with that package, so that the suite compares with it without PyTorch.

The command needs byzfl and NumPy, and nothing of ours:

    python3 -m venv /tmp/byzfl_env && /tmp/byzfl_env/bin/pip install torch==2.13.0 byzfl==0.0.11 numpy
    /tmp/byzfl_env/bin/python -m tests.support.byzfl_vectors

It writes `byzfl_vectors.npz` beside this file, updates and results in float64:

    updates/CASE_NxD      [n, d]; of attacks: of the honest clients alone
    order/N               the order in which byzfl's bucketing draws n updates, at the seed of these vectors
    rule/CALL/CASE_NxD    [d] of these updates
    again/CALL/CASE_NxD   [d] of the next call with the same updates, of a rule that remembers
    first/CALL/CASE_NxD   [n', d], before a rule
    attack/CALL/CASE_NxD  [d], what each attacker sends

CALL has our names and parameters, `trimmed_mean(f=2, first=nnm(f=2))`: who reads it evaluates it.

Left out is what byzfl itself does not define: whom a rule takes of several that are equally far (but for copies of one
update, where it makes no difference), and infinities that byzfl lets become NaN. `gaussian` draws, and the labels of
`label_flipping` are flipped elsewhere.
"""

import importlib
import importlib.util
import math
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FILE = Path(__file__).with_suffix(".npz")
SEED = 0  # of byzfl's draws


class Vector(NamedTuple):
    """What byzfl gives for some updates."""

    kind: str
    call: str
    updates: np.ndarray
    order: np.ndarray  # of bucketing
    expected: np.ndarray

    @property
    def name(self) -> str:
        """Of the rule, of what comes before one, or of the attack."""
        return self.call.partition("(")[0]


def vectors() -> dict[str, Vector]:
    """The committed ones, by their names in the file."""
    stored, found = read(), {}
    for key, expected in stored.items():
        kind, _, rest = key.partition("/")
        if kind in ("rule", "again", "first", "attack"):
            call, _, case = rest.rpartition("/")
            updates = stored[f"updates/{case}"]
            found[key] = Vector(kind, call, updates, stored[f"order/{len(updates)}"], expected)
    return found


def read() -> dict[str, np.ndarray]:
    """The file as it is."""
    with np.load(FILE) as stored:
        return dict(stored)


def installed() -> bool:
    """Whether the package is here, and PyTorch, which it needs."""
    return all(importlib.util.find_spec(name) for name in ("torch", "byzfl"))


def make() -> dict[str, np.ndarray]:
    """The same from the package."""
    updates, theirs = cases(), peers()
    made = {f"updates/{case}": x for case, x in updates.items()}
    for n in WITHSTOOD:
        np.random.seed(SEED)
        made[f"order/{n}"] = np.random.permutation(n)
    for kind, call, case in calls():
        peer, x = eval(call, theirs), updates[case]
        with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
            np.random.seed(SEED)
            made[f"{kind}/{call}/{case}"] = peer(x.copy())  # a copy: some of byzfl's write into what they are given
            if call.startswith("centered_clipping"):
                made[f"again/{call}/{case}"] = peer(x.copy())
    return made


def cases() -> dict[str, np.ndarray]:
    """Updates by name: random ones of several shapes, and degenerate ones."""
    x, honest = (np.random.default_rng(0).normal(size=size) for size in ((9, 7), (4, 4)))
    rng = np.random.default_rng(1)
    wide, many, few, flat, single = (rng.normal(size=size) for size in ((10, 20), (40, 5), (4, 3), (10, 1), (1, 4)))
    return {
        "random_9x7": x,
        "long_9x7": 1e3 * x,
        "zero_9x7": np.zeros((9, 7)),
        "equal_9x7": np.tile(x[0], (9, 1)),
        "shifted_9x7": 1e3 + x,
        "one_far_9x7": np.concatenate([x[:4], np.full((1, 7), -1e9), x[5:]]),
        "two_far_9x7": np.concatenate([x[:7], np.full((2, 7), 1e6)]),
        "two_infinite_9x7": np.concatenate([np.full((1, 7), np.inf), x[1:8], np.full((1, 7), -np.inf)]),
        "two_alike_9x7": np.concatenate([x[:7], np.tile(x[:7].mean(0) - 2 * x[:7].std(0), (2, 1))]),
        "ties_9x7": rng.integers(-1, 2, (9, 7)).astype(float),
        "random_10x20": wide,
        "copies_10x20": np.concatenate([wide[:5], wide[:5]]),
        "one_far_10x20": np.concatenate([wide[:9], 1e9 * wide[9:]]),
        "random_4x3": few,
        "zero_4x3": np.zeros((4, 3)),
        "one_far_4x3": np.concatenate([1e9 * few[:1], few[1:]]),
        "random_40x5": many,
        "random_10x1": flat,
        "random_1x4": single,
        "honest_random_4x4": honest,
        "honest_long_4x4": 1e3 * honest,
        "honest_equal_4x4": np.tile(honest[0], (4, 1)),
        "honest_zero_4x4": np.zeros((4, 4)),
    }


WITHSTOOD = {9: (0, 2, 4), 10: (4,), 4: (1,), 40: (8,), 1: (0,)}  # n -> f
NEAREST = ("meamed", "krum", "multi_krum", "mda", "nnm")  # which choose by distance, so that ties matter
PAST_INFINITIES = (
    "median()",
    "geometric_median(nu=0.1, iterations=4)",
    "trimmed_mean(f=2)",
    "meamed(f=2)",
    "multi_krum(f=2)",
    "mda(f=2)",
)


def calls() -> Iterator[tuple[str, str, str]]:
    """What is computed: the kind of a vector, the call, and of which updates."""
    for case, x in cases().items():
        if case.startswith("honest"):
            yield from (("attack", call, case) for call in attack_calls())
            continue
        for kind, call in rule_calls(len(x)):
            if case.startswith("ties") and any(name in call for name in NEAREST):
                continue
            if case.startswith("two_infinite") and call not in PAST_INFINITIES:
                continue
            yield kind, call, case


def rule_calls(n: int) -> Iterator[tuple[str, str]]:
    """Rules, and what comes before them, that n updates can be given to."""
    yield "rule", "mean()"
    yield "rule", "median()"
    yield "rule", "geometric_median(nu=0.1, iterations=4)"
    yield "rule", "centered_clipping(radius=1.5, iterations=3)"
    yield "first", "clipping(c=2.0)"
    yield "first", "bucketing(s=4)"
    for f in WITHSTOOD[n]:
        for name in ("trimmed_mean", "meamed", "krum", "multi_krum"):
            yield "rule", f"{name}(f={f})"
        for name in ("nnm", "arc"):
            yield "first", f"{name}(f={f})"
        if n > 1 and math.comb(n, f) <= 1000:
            yield "rule", f"mda(f={f})"
    if n == 9:
        yield "rule", "geometric_median(nu=2.0, iterations=1)"
        yield "rule", "centered_clipping(radius=100.0, iterations=1)"
        yield "rule", "trimmed_mean(f=2, first=nnm(f=2))"
        yield "rule", "median(first=bucketing(s=2))"
        yield "rule", "krum(f=2, first=arc(f=2))"
        yield "rule", "mean(first=nnm(f=2, first=clipping(c=2.0)))"


def attack_calls() -> Iterator[str]:
    """Attacks of two clients. Those that search know the rule; `mimic` takes the first honest client."""
    yield "inner_product_manipulation(factor=2.0)"
    yield "inner_product_manipulation(factor=1.0)"
    yield "a_little_is_enough(factor=1.5)"
    yield "mimic()"
    yield "inf()"
    for name in ("opt_ipm", "opt_alie"):
        for rule in ("mean()", "trimmed_mean(f=2)", "krum(f=2)", "geometric_median(nu=0.1, iterations=4)"):
            yield f"{name}(aggregator={rule})"


def peers() -> dict[str, Any]:
    """byzfl's makers, by our names and with our parameters."""
    of, attacks = package("aggregators"), package("attacks")

    def after(first: Any, own: Any) -> Any:
        return own if first is None else lambda x: own(first(x))

    return {
        "mean": lambda first=None: after(first, of.Average()),
        "median": lambda first=None: after(first, of.Median()),
        "trimmed_mean": lambda f, first=None: after(first, of.TrMean(f)),
        "meamed": lambda f, first=None: after(first, of.Meamed(f)),
        "geometric_median": lambda nu, iterations: of.GeometricMedian(nu=nu, T=iterations),
        "krum": lambda f, first=None: after(first, of.Krum(f)),
        "multi_krum": lambda f: of.MultiKrum(f),
        "mda": lambda f: of.MDA(f),
        "centered_clipping": lambda radius, iterations: of.CenteredClipping(tau=radius, L=iterations),
        "nnm": lambda f, first=None: after(first, of.NNM(f)),
        "bucketing": lambda s: of.Bucketing(s),
        "clipping": lambda c: of.Clipping(c),
        "arc": lambda f: of.ARC(f),
        # byzfl's sign flipping is this with a factor of 1
        "inner_product_manipulation": lambda factor: (
            attacks.SignFlipping() if factor == 1 else attacks.InnerProductManipulation(factor)
        ),
        "a_little_is_enough": lambda factor: attacks.ALittleIsEnough(factor),
        "mimic": lambda: attacks.Mimic(0),
        "inf": lambda: attacks.Inf(),
        "opt_ipm": lambda aggregator: attacks.Optimal_InnerProductManipulation(aggregator, [], f=2),
        "opt_alie": lambda aggregator: attacks.Optimal_ALittleIsEnough(aggregator, [], f=2),
    }


def package(module: str) -> Any:
    """byzfl.aggregators or byzfl.attacks, without the rest of byzfl, which imports torchvision and seaborn."""
    if "byzfl" not in sys.modules:
        found = importlib.util.find_spec("byzfl")
        sys.modules["byzfl"] = types.ModuleType("byzfl")
        sys.modules["byzfl"].__path__ = list(found.submodule_search_locations)
    return importlib.import_module(f"byzfl.{module}")


if __name__ == "__main__":
    np.savez_compressed(FILE, **make())
    print(f"{len(vectors())} vectors, {FILE.stat().st_size / 1e3:.0f} kB: {FILE}")
