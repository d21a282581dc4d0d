"""The number of threads that PyTorch computes with."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def one_thread() -> Iterator[None]:
    """Let PyTorch compute on the calling thread alone.

    Sums then have one order on every machine, and no OpenMP thread spins after its work, for about
    a millisecond, on a processor that others wait for.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
