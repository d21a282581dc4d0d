"""Compiled loops (numba), for the few places where no array library has the loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, cast

from numba import njit

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    Function = TypeVar("Function", bound=Callable[..., object])


def compiled(*, relaxed: Collection[str] = ()) -> Callable[[Function], Function]:
    """Compile a function on its first call, and release the GIL while it runs.

    Its code is cached on disk, beside the source or in the user's cache. Where neither is writable,
    as in a container with a read-only disk, every process compiles it again.

    Args:
        relaxed: Floating-point transformations that the compiler may make; none by default.
    """

    def compile_(function: Function) -> Function:
        try:
            found = njit(cache=True, nogil=True, fastmath=set(relaxed))(function)
        except RuntimeError:  # nowhere to cache it
            found = njit(nogil=True, fastmath=set(relaxed))(function)
        return cast("Function", found)

    return compile_
