"""How often Python follows a function that a program is made of."""

from collections.abc import Callable
from typing import Any

import jax


def traced_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, followed once for arguments of the same shapes; the program is the same.

    A loop that adds up replies needs their shapes before it computes any. Asking for them follows the function a second
    time, and what it calls does so again: nested four deep, the innermost one is followed sixteen times.
    """
    return jax.jit(function, inline=True)
