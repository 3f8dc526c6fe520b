"""Properties that hypothesis tries on many inputs, always the same ones: no test needs luck."""

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from fedeba_jax.data.sources.raw import DataError

changes = st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, 9), st.one_of(st.binary(max_size=9), st.sampled_from((b"-1", b"1e999")))),
    min_size=1,
    max_size=3,
)
"""What happens to the bytes of a file: at a place, so many go and others come."""


def changed(content: bytes, at: list[tuple[float, int, bytes]]) -> bytes:
    """The bytes after these changes; where more than a few go and none comes, all that follow go too."""
    for place, gone, put in at:
        begin = int(place * len(content))
        content = content[:begin] + put + (content[begin + gone :] if put or gone < 5 else b"")
    return content


def refused(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """What a function makes of its input; None if it refuses it in one line."""
    try:
        return function(*arguments, **options)
    except ValueError as error:
        raised = error
    assert type(raised) in (ValueError, DataError), repr(raised)
    assert str(raised).splitlines() == [str(raised)]
    assert len(str(raised)) < 5000
    return None


def fuzz(check: Callable[..., Any], inputs: SearchStrategy[tuple[Any, ...]], examples: int) -> None:
    """Call the check with so many tuples of arguments."""
    quick = settings(
        max_examples=examples, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    given(inputs)(quick(lambda arguments: check(*arguments)))()
