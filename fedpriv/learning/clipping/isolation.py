"""A user's own code under `torch.func.vmap`: it sees one record, and nothing beneath sees all.

To a module or a loss under vmap, a batch is one record: it cannot tell how many there are, nor
branch on their values. So whatever it computes for a record follows from that record alone.
"""

from __future__ import annotations

import sys
import warnings
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from typing import TYPE_CHECKING

import torch
from torch.func import vmap

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from fedpriv.learning.losses import Loss


_without_dispatch = torch._C._DisableTorchDispatch  # noqa: SLF001


@contextmanager
def record_by_record() -> Iterator[None]:
    """What runs below vmap is PyTorch's own: code of the user's would see all records at once.

    PyTorch shows dispatch modes, and tensors with a ``__torch_dispatch__`` of their own, the whole
    batch that vmap computes. Here they are left out. The compiler needs them, so compiled modules
    run as they were written.
    """
    compiles = "torch._dynamo" in sys.modules  # loading it takes seconds
    plain = torch.compiler.set_stance("force_eager") if compiles else nullcontext()
    with warnings.catch_warnings(), plain, _without_dispatch():
        # Layers such as LSTM are computed record by record: slower, but equally correct.
        warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
        yield


def slopes_one_by_one(loss: Loss, scores: Tensor, labels: Tensor) -> Tensor:
    """The slopes of a loss of a user's own, each from a call that sees one score and label.

    By a fresh copy of the loss, as for modules: it may keep something of what it was shown.
    """
    own = deepcopy(loss)

    def slope(score: Tensor, label: Tensor) -> Tensor:
        # Copies, because a loss may write into its arguments; and measured as it is added up.
        found = own.slope(score.clone().unsqueeze(0), label.clone().unsqueeze(0))
        return found[0].to(score.dtype)

    with record_by_record():
        found: Tensor = vmap(slope)(scores, labels)
        return found
