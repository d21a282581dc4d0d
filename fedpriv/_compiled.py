"""Compiled loops, by numba, for the few places where no array library has the loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, cast

from numba import njit

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    Function = TypeVar("Function", bound=Callable[..., object])


def compiled(*, relaxed: Collection[str] = ()) -> Callable[[Function], Function]:
    """Compile a function when it is first called, and let other threads run beside it.

    Its code is kept on disk, beside the source or in the user's cache. Where neither can be written
    to, as in a container with a read-only disk, every process compiles it anew.

    Args:
        relaxed: What the compiler may change about floating point; nothing unless it is named.
    """

    def compile_(function: Function) -> Function:
        try:
            found = njit(cache=True, nogil=True, fastmath=set(relaxed))(function)
        except RuntimeError:  # no place for it
            found = njit(nogil=True, fastmath=set(relaxed))(function)
        return cast("Function", found)

    return compile_
