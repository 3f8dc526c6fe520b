"""What a method goes with, declared once where the method is defined.

Errors of wrong combinations, `--list`, tables in the docs and the tests of all pairs follow from the declaration;
errors of wrong numbers follow from the bounds in the signature:

    @method(privacy=("client",))
    def fedeba(local, server, *, tau=1.0, prior="none"): ...
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, ParamSpec

from fedeba_jax.aggregation import Rule
from fedeba_jax.hyperparameters import Range, check_values
from fedeba_jax.local import LocalTraining
from fedeba_jax.privacy import REASONS
from fedeba_jax.server import Server, as_it_is
from fedeba_jax.types import Algorithm, InitParams, Key, Sizes, State

P = ParamSpec("P")
Guard = Callable[..., Rule | None]


class Declaration(NamedTuple):
    """What a method goes with.

    Attributes:
      privacy: the modes of `fedeba_jax.privacy` that make sense for it, beside none.
      weighted_sum: whether its server step is a weighted sum of the clients' updates as they came, which FedVARP needs.
      guarded_sum: if it is one of updates that the method guards first, what attackers suppose of it who do not see
        losses yet: a rule, from hyper-parameters that it names. A robust rule may take the place of such a sum, but
        updates that FedVARP remembers would pass by the guards.
      hears_losses: whether clients tell the server losses, or other numbers of theirs, about which they could lie.
      logits: whether it looks at predictions and needs `LocalTraining(apply=...)`.
      one_full_step: whether clients take one step on all their data, whatever local training says.
      everyone_if: values of its hyper-parameters at which it uses every client in every round, by definition.
      search: where `experiments.tune` looks for good values of its traced hyper-parameters; others stay as they are.
    """

    privacy: tuple[str, ...] = ()
    weighted_sum: bool = True
    guarded_sum: Guard | None = None
    hears_losses: bool = True
    logits: bool = False
    one_full_step: bool = False
    everyone_if: Mapping[str, Any] = {}
    search: Mapping[str, Range] = {}


def method(
    *,
    privacy: tuple[str, ...] = (),
    weighted_sum: bool = True,
    guarded_sum: Guard | None = None,
    hears_losses: bool = True,
    logits: bool = False,
    one_full_step: bool = False,
    everyone_if: Mapping[str, Any] | None = None,
    search: Mapping[str, Range] | None = None,
) -> Callable[[Callable[P, Algorithm]], Callable[P, Algorithm]]:
    """Declares a factory of an algorithm, and makes it refuse what it does not go with."""
    as_they_came = weighted_sum and guarded_sum is None
    declaration = Declaration(
        privacy, as_they_came, guarded_sum, hears_losses, logits, one_full_step, everyone_if or {}, search or {}
    )

    def decorate(factory: Callable[P, Algorithm]) -> Callable[P, Algorithm]:
        @functools.wraps(factory)
        def checked(*args: P.args, **kwargs: P.kwargs) -> Algorithm:
            given = inspect.signature(factory).bind(*args, **kwargs)
            given.apply_defaults()
            check_values(factory, given.arguments)
            _check_privacy(declaration, given.arguments["local"], given.arguments["server"])
            algorithm = factory(*args, **kwargs)
            return _for_everyone(algorithm, checked) if uses_everybody(checked, given.arguments) else algorithm

        checked.declaration = declaration  # type: ignore[attr-defined]
        return checked

    return decorate


def declared(factory: Callable[..., Algorithm]) -> Declaration:
    """What a factory's method goes with."""
    return getattr(factory, "declaration", Declaration())


def supposed_rule(factory: Callable[..., Algorithm], hparams: Mapping[str, Any]) -> Rule | None:
    """What attackers who search suppose of the method's own sum, with these hyper-parameters and defaults for the rest.

    None is a mean. Of a schedule they suppose the first value.
    """
    guard = declared(factory).guarded_sum
    if guard is None:
        return None
    known = inspect.signature(factory).parameters
    values = {name: hparams.get(name, known[name].default) for name in inspect.signature(guard).parameters}
    return guard(**{name: value(0) if callable(value) else value for name, value in values.items()})


def uses_everybody(factory: Callable[..., Algorithm], hparams: Mapping[str, Any]) -> bool:
    """Whether the method, with these hyper-parameters and defaults for the rest, uses every client in every round."""
    values = declared(factory).everyone_if
    defaults = inspect.signature(factory).parameters
    return bool(values) and all(hparams.get(name, defaults[name].default) == value for name, value in values.items())


def _check_privacy(declaration: Declaration, local: LocalTraining, server: Server) -> None:
    asked = {
        "client": local.limits is not None,
        "example": local.per_example is not None,
        "paper": server.publish is not as_it_is,
    }
    for mode, is_asked in asked.items():
        if is_asked and mode not in declaration.privacy:
            raise ValueError(f"privacy={mode} is not possible here: {REASONS[mode]}")


def _for_everyone(algorithm: Algorithm, factory: Callable[..., Algorithm]) -> Algorithm:
    def init(key: Key, init_params: InitParams, sizes: Sizes) -> State:
        if sizes.cohort_size != sizes.num_clients:
            setting = ", ".join(f"{name}={value!r}" for name, value in declared(factory).everyone_if.items())
            raise ValueError(
                f"cohort_size={sizes.cohort_size}, but {factory.__name__} with {setting} uses every client "
                f"in every round; set cohort_size={sizes.num_clients}"
            )
        return algorithm.init(key, init_params, sizes)

    return algorithm._replace(init=init)
