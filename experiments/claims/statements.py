"""What the figures say about each claim of the paper, in words that are fixed beforehand."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from experiments.claims.convergence import Course
from experiments.claims.fairness import Map
from experiments.claims.temperature import Limits, Uniqueness
from experiments.claims.toy import Case

HOLDS, IN_PART, FAILS = "holds", "holds in part", "fails"
SAME = 1e-6  # weights that differ by less are the same
SLOPE = -0.5  # of log |grad|^2 over log T: 1 / sqrt(T)


class Statement(NamedTuple):
    """A claim in our words, its place in the paper, and what the figures say."""

    claim: str
    place: str
    verdict: str
    evidence: str


def of_shares(shares: np.ndarray) -> str:
    """A claim on every federation: it holds, holds in part (in every federation of some cell), or fails."""
    return HOLDS if shares.min() == 1 else IN_PART if shares.max() == 1 else FAILS


def toy(cases: Sequence[Case], crossings: Mapping[str, float]) -> list[Statement]:
    average, at_one, printed, _, qffl, *_ = cases
    order = printed.variance < qffl.variance < average.variance
    return [
        Statement(
            "on the toy case FedEBA+ with tau = 1 ends at x = -0.1, fairer than FedAvg",
            "appendix I.1",
            HOLDS if abs(at_one.x + 0.1) < 0.01 and at_one.variance < average.variance else FAILS,
            f"x = {at_one.x:.4f}, variance {at_one.variance:.2f} against {average.variance:.2f}; x = -0.1 is tau = "
            f"{crossings['as_printed']:.3f}, and every tau above {crossings['fairer_above']:.3f} is fairer than FedAvg",
        ),
        Statement(
            "on the toy case the variances are in the order FedEBA+ < q-FFL < FedAvg",
            "appendix I.1",
            IN_PART if order and at_one.variance > average.variance else HOLDS if order else FAILS,
            f"{printed.variance:.3f} < {qffl.variance:.3f} < {average.variance:.3f} at tau = "
            f"{crossings['as_printed']:.3f} with the printed steps of q-FFL (q = 1, L = 1); not at tau = 1",
        ),
    ]


def fairness(maps: Mapping[str, Map], titles: Mapping[str, str], two: Mapping[str, float]) -> list[Statement]:
    """Theorem 5.4 in each setting, by both variances."""
    found = []
    for name, one in maps.items():
        place = f"theorem 5.4, appendix {'I.2' if name.startswith('regression') else 'I.3'}"
        for form, shares in (("Definition 3.1", one.definition), ("the proof's weighted form", one.proof)):
            low, high = 100 * shares.min(), 100 * shares.max()
            found.append(
                Statement(
                    f"FedEBA+'s variance is below FedAvg's ({titles[name]}; by {form})",
                    place,
                    of_shares(shares),
                    f"in {low:.1f} % to {high:.1f} % of the federations, by tau and spread",
                )
            )
    found.append(
        Statement(
            "the same for two clients of equal curvature, the case that the proof writes out",
            "appendix I.2",
            HOLDS if two["fedeba"] <= two["fedavg"] else FAILS,
            f"FedAvg is as far from both: variance {two['fedavg']:.2g}; FedEBA has {two['fedeba']:.2g}",
        )
    )
    return found


def extension(three: Mapping[str, float]) -> Statement:
    return Statement(
        "larger weights on larger values lower the weighted variance, for any number of clients",
        "appendix I.2",
        HOLDS if three["weighted"] <= three["uniform"] else FAILS,
        f"values (1, 0, 0): {three['uniform']:.4f} with equal weights, {three['weighted']:.4f} with (1/2, 1/4, 1/4)",
    )


def temperature(unique: Uniqueness, ends: Limits) -> list[Statement]:
    alike = max(unique.between_starts, unique.to_closed_form)
    limits = max(ends.to_uniform, ends.to_prior) < 1e-5 and ends.on_the_worst > 0.99
    return [
        Statement(
            "the constrained maximum-entropy problem has one solution, p_i ~ exp(F_i / tau)",
            "proposition 4.1, appendix K",
            HOLDS if alike < SAME else FAILS,
            f"{unique.problems} problems from {unique.starts} starts each: weights differ by {alike:.1g} at most",
        ),
        Statement(
            "tau -> infinity gives FedAvg (or the prior), tau -> 0 the worst client",
            "remark after proposition 4.1",
            HOLDS if limits and ends.is_monotone else FAILS,
            f"{ends.problems} loss vectors: within {max(ends.to_uniform, ends.to_prior):.1g} at tau = 1e6; the worst "
            f"client has {ends.on_the_worst:.4f} or more at tau = 1e-3; the weighted loss falls with tau",
        ),
    ]


def convergence(course: Course) -> list[Statement]:
    own, average = course.slopes(course.own), course.slopes(course.average)

    def told(slopes: np.ndarray) -> str:
        return ", ".join(f"{slope:.2f} at tau = {tau:g}" for slope, tau in zip(slopes, course.taus, strict=True))

    return [
        Statement(
            "min_t |grad f|^2 falls as 1 / sqrt(T) or faster, f the objective of the round's weights",
            "theorem 5.1",
            HOLDS if (own <= SLOPE).all() else IN_PART if (own <= SLOPE).any() else FAILS,
            f"slopes of log |grad|^2 over log T: {told(own)}",
        ),
        Statement(
            "the same for the mean loss over clients, which FedAvg minimises",
            "not claimed: the bound of appendix H keeps a term that does not fall",
            HOLDS if (average <= SLOPE).all() else IN_PART if (average <= SLOPE).any() else FAILS,
            f"slopes {told(average)}; FedAvg {course.slopes(course.fedavg):.2f}",
        ),
    ]
