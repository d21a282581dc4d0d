"""Errors of a user's own code that one record causes: that record counts as zero, and no other.

An index beyond a table or a singular matrix is an error of PyTorch's, which may quote the record
or its number. A release that ends with it, or ends only if that record is there, tells of the
record without any noise. So a record on which a module or a loss raises is rejected, as one without
a finite gradient is. An error that no record causes is raised before any record is looked at
(`require_computable`), and so whatever the records are.
"""

from __future__ import annotations

from math import nan
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

import torch

from fedpriv.learning.batch import RecordBatch
from fedpriv.learning.clipping.factors import Rows
from fedpriv.learning.losses import PROVED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from fedpriv.learning.clipping.factors import Factor
    from fedpriv.learning.losses import Loss
    from fedpriv.learning.models import Model

T = TypeVar("T")

_ALONE = (
    "module and loss must compute for a record among others what they compute for it alone; here "
    "they raise an error only among others. Is there enough memory?"
)

_computable: WeakKeyDictionary[Model, set[torch.dtype]] = WeakKeyDictionary()


def require_computable(model: Model, loss: Loss, theta: Tensor, blank: RecordBatch) -> None:
    """Raise the error that a record of zeros, or a score of zero, causes in a user's own code.

    It depends on no record, nor on whether there are any. A module is tried once in a precision.
    ``blank`` is that of `blank_record`.
    """
    from fedpriv.learning.clipping.dense import slopes  # which knows this module

    if type(loss) not in PROVED:
        slopes(loss, theta.new_zeros((1, loss.outputs)), blank.labels)
    if not hasattr(model, "__weakref__"):  # fedpriv's own, with slots
        return
    done = _computable.setdefault(model, set())
    if theta.dtype not in done:
        here = blank.on(model.device)
        model.gradient_factors(theta.to(here.features), here, loss)
        done.add(theta.dtype)


def blank_record(model: Model, loss: Loss, like: Tensor) -> RecordBatch:
    """Zeros of a tensor's precision, with the label 1, which is one of every task."""
    labels = torch.ones(1, dtype=like.dtype if loss.outputs == 1 else torch.int64)
    return RecordBatch(features=like.new_zeros((1, model.features)), labels=labels)


def spared_factors(
    model: Model, loss: Loss, theta: Tensor, batch: RecordBatch
) -> tuple[Factor, ...]:
    """The gradient of every record; not a number where the model or the loss raises an error."""

    def factors(features: Tensor, labels: Tensor) -> tuple[Factor, ...]:
        return model.gradient_factors(theta, RecordBatch(features=features, labels=labels), loss)

    try:
        return model.gradient_factors(theta, batch, loss)
    except Exception:  # noqa: S110  # it may be about a record
        pass
    found, failing = _spared(factors, batch.features, batch.labels)
    if found is None:
        return (Rows(batch.features.new_full((len(batch), model.dimension), nan)),)
    return tuple(factor.without(failing, value=nan) for factor in found)


def spared_rows(compute: Callable[..., Tensor], *rows: Tensor, shape: Sequence[int] = ()) -> Tensor:
    """What ``compute`` finds, a row a record; not a number for records on which it raises an error.

    Args:
        compute: Of tensors like ``rows``, each record on its own.
        rows: Features or scores of records; and labels, if it takes any.
        shape: Of a row that it finds.
    """
    try:
        return compute(*rows)
    except Exception:  # noqa: S110  # it may be about a record
        pass
    found, failing = _spared(compute, *rows)
    if found is None:
        return rows[0].new_full((len(rows[0]), *shape), nan)
    return found.masked_fill(failing.view(-1, *[1] * (found.ndim - 1)), nan)


def spared_places(
    compute: Callable[[Tensor], T], count: int, *, blank: int | None = None
) -> tuple[T | None, Tensor]:
    """What ``compute`` finds at the places 0 … count - 1, others standing in where it fails.

    All others keep their positions, and so are computed by the same instructions as without the
    failing ones. No error of one place ends this, alone or among others, as long as some stand-in
    passes among others as it does alone.

    Args:
        compute: Of places, in any order and number.
        count: How many there are.
        blank: A further place, of something public, to stand in if ``compute`` takes it.

    Returns:
        What it finds, None if it fails everywhere; and a mask of the failing places.
    """
    every = torch.arange(count)
    failing = failing_places(compute, count)
    stands = [] if blank is None or _fails(compute, torch.tensor([blank])) else [blank]
    stands += every[~failing][[0, -1]].tolist() if not bool(failing.all()) else []
    for stand in stands:

        def among(places: Tensor, stand: int = stand) -> T:
            present = torch.zeros(count, dtype=torch.bool).index_fill_(0, places, value=True)
            return compute(torch.where(present, every, stand))

        if _fails(among, every[:0]):
            continue
        if _fails(among, every[~failing]):  # a place may fail only among others
            failing = failing | failing_places(among, count)
        return among(every[~failing]), failing
    if stands:
        raise RuntimeError(_ALONE)
    return None, failing


def failing_places(compute: Callable[[Tensor], object], count: int) -> Tensor:
    """A mask of the places 0 … count - 1 at which ``compute`` raises an error, by bisection."""
    failing = torch.zeros(count, dtype=torch.bool)
    pending = [torch.arange(count)]
    while pending:
        places = pending.pop()
        if not _fails(compute, places):
            continue
        if len(places) == 1:
            failing[places] = True
        else:
            pending += places.tensor_split(2)
    return failing


def _fails(compute: Callable[[Tensor], object], places: Tensor) -> bool:
    try:
        compute(places)
    except Exception:  # it may be about a record
        return True
    return False


def _spared(compute: Callable[..., T], *rows: Tensor) -> tuple[T | None, Tensor]:
    """What ``compute`` finds with stand-ins for the records on which it fails, and which they are.

    The first to stand in is a record of zeros with the label 1, which is one of every task.
    """
    first, *others = rows
    blanks = (torch.zeros_like(first[:1]), *(torch.ones_like(each[:1]) for each in others))
    longer = [torch.cat(pair) for pair in zip(rows, blanks, strict=True)]

    def at(places: Tensor) -> T:
        return compute(*(each[places.to(each.device)] for each in longer))

    found, failing = spared_places(at, len(first), blank=len(first))
    return found, failing.to(first.device)
