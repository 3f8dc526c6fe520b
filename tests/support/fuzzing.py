"""Properties that hypothesis tries on many inputs, always the same ones: no test needs luck."""

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import SearchStrategy


def fuzz(check: Callable[..., Any], inputs: SearchStrategy[tuple[Any, ...]], examples: int) -> None:
    """Call the check with so many tuples of arguments."""
    quick = settings(
        max_examples=examples, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    given(inputs)(quick(lambda arguments: check(*arguments)))()
