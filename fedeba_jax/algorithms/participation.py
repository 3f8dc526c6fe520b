"""Methods that by definition use every client in every round."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from fedeba_jax.types import Algorithm, Key, Params, Sizes, State

Factory = Callable[..., Algorithm]


def full_participation_if(**values: Any) -> Callable[[Factory], Factory]:
    """Marks a factory whose method uses every client at these values of its hyper-parameters.

    Its `init` refuses smaller cohorts; `uses_everybody` tells those who choose the cohort's size.
    """

    def decorate(factory: Factory) -> Factory:
        @functools.wraps(factory)
        def checked(*collaborators: Any, **hparams: Any) -> Algorithm:
            algorithm = factory(*collaborators, **hparams)

            def init(key: Key, init_params: Callable[[Key], Params], sizes: Sizes) -> State:
                if sizes.cohort_size != sizes.num_clients:
                    setting = ", ".join(f"{name}={value!r}" for name, value in values.items())
                    raise ValueError(
                        f"cohort_size={sizes.cohort_size}, but {factory.__name__} with {setting} uses every client "
                        f"in every round; set cohort_size={sizes.num_clients}"
                    )
                return algorithm.init(key, init_params, sizes)

            return algorithm._replace(init=init) if uses_everybody(checked, hparams) else algorithm

        checked.full_participation_if = values  # type: ignore[attr-defined]
        return checked

    return decorate


def uses_everybody(factory: Factory, hparams: Mapping[str, Any]) -> bool:
    """Whether the method, with these hyper-parameters and defaults for the rest, uses every client in every round."""
    values = getattr(factory, "full_participation_if", {})
    defaults = inspect.signature(factory).parameters
    return bool(values) and all(hparams.get(name, defaults[name].default) == value for name, value in values.items())
