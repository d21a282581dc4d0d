"""A user's own code under `torch.func.vmap`: it sees one record, and nothing beneath sees all.

To a module or a loss under vmap, a batch is one record: it cannot tell how many there are, nor
branch on their values. So what it computes for a record follows from that record alone. That is
how vmap works, and not a proof for all code: docs/limitations.md names the ways around it that are
known and open (rules for vmap of one's own, TorchScript, private functions of PyTorch, globals).
"""

from __future__ import annotations

import sys
import warnings
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from typing import TYPE_CHECKING

import torch
from torch.func import vmap

from fedpriv.learning.clipping.errors_kept import ErrorsKept

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from fedpriv.learning.losses import Loss


_SAVED = "hooks on saved tensors (and checkpointing) would see all records: leave them out."

_without_dispatch = torch._C._DisableTorchDispatch  # noqa: SLF001


@contextmanager
def record_by_record() -> Iterator[None]:
    """What runs below vmap is PyTorch's own: code of the user's would see all records at once.

    PyTorch shows dispatch modes, and tensors with a ``__torch_dispatch__`` of their own, the whole
    batch that vmap computes. Here they are left out. The compiler needs them, so compiled modules
    run as they were written. Hooks on saved tensors would see it as well: they are an error. So is
    an error that the code catches, since it is caught for all records (`ErrorsKept`).
    """
    compiles = "torch._dynamo" in sys.modules  # loading it takes seconds
    plain = torch.compiler.set_stance("force_eager") if compiles else nullcontext()
    saved = torch.autograd.graph.disable_saved_tensors_hooks(_SAVED)
    errors = ErrorsKept()
    with warnings.catch_warnings(), plain, _without_dispatch(), saved, errors:
        # Layers such as LSTM are computed record by record: slower, but equally correct.
        warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
        yield
    errors.require_none()


def slopes_one_by_one(loss: Loss, scores: Tensor, labels: Tensor) -> Tensor:
    """The slopes of a loss of a user's own, each from a call that sees one score and label."""
    return _one_by_one(deepcopy(loss).slope, scores, labels)


def values_one_by_one(loss: Loss, scores: Tensor, labels: Tensor) -> Tensor:
    """The values of a loss of a user's own, each from a call that sees one score and label."""
    return _one_by_one(deepcopy(loss).value, scores, labels)


def _one_by_one(
    method: Callable[[Tensor, Tensor], Tensor], scores: Tensor, labels: Tensor
) -> Tensor:
    """By a fresh copy of the loss, as for modules: it may keep something of what it was shown."""

    def one(score: Tensor, label: Tensor) -> Tensor:
        # Copies, because a loss may write into its arguments; and measured as it is added up.
        found = method(score.clone().unsqueeze(0), label.clone().unsqueeze(0))
        return found[0].to(score.dtype)

    with record_by_record():
        found: Tensor = vmap(one)(scores, labels)
        return found
