"""Errors of a user's own code that one record causes: that record counts as zero, and no other.

An index beyond a table or a singular matrix is an error of PyTorch's, which may quote the record
or its number. A release that ends with it, or ends only if that record is there, tells of the
record without any noise. So a record on which a module or a loss raises is rejected, as one without
a finite gradient is. An error that no record causes is raised, from a record of zeros.
"""

from __future__ import annotations

from math import nan
from typing import TYPE_CHECKING, TypeVar

import torch

from fedpriv.learning.batch import RecordBatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from fedpriv.learning.clipping.factors import Factor
    from fedpriv.learning.losses import Loss
    from fedpriv.learning.models import Model

T = TypeVar("T")


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
    return tuple(factor.without(failing, value=nan) for factor in found)


def spared_rows(compute: Callable[..., Tensor], *rows: Tensor) -> Tensor:
    """What ``compute`` finds, a row a record; not a number for records on which it raises an error.

    Args:
        compute: Of tensors like ``rows``, each record on its own.
        rows: Features or scores of records; and labels, if it takes any.
    """
    try:
        return compute(*rows)
    except Exception:  # noqa: S110  # it may be about a record
        pass
    found, failing = _spared(compute, *rows)
    return found.masked_fill(failing.view(-1, *[1] * (found.ndim - 1)), nan)


def failing_places(compute: Callable[[Tensor], object], count: int) -> Tensor:
    """A mask of the places 0 … count - 1 at which ``compute`` raises an error, by bisection."""
    failing = torch.zeros(count, dtype=torch.bool)
    pending = [torch.arange(count)]
    while pending:
        places = pending.pop()
        try:
            compute(places)
        except Exception:  # it may be about a record
            if len(places) == 1:
                failing[places] = True
            else:
                pending += places.tensor_split(2)
    return failing


def _spared(compute: Callable[..., T], *rows: Tensor) -> tuple[T, Tensor]:
    """What ``compute`` finds with blanks for the records on which it fails, and which they are.

    All others keep their positions, and so are computed by the same instructions as without them.
    """
    first, *others = (each[:1] for each in rows)
    blanks = (torch.zeros_like(first), *map(torch.ones_like, others))  # 1 is a label of every task
    compute(*blanks)  # an error that no record causes
    failing = failing_places(
        lambda places: compute(*(each[places.to(each.device)] for each in rows)), len(rows[0])
    ).to(rows[0].device)
    filled = []
    for each, blank in zip(rows, blanks, strict=True):
        mask = failing.view(-1, *[1] * (each.ndim - 1))
        filled.append(torch.where(mask, blank, each))
    return compute(*filled), failing
