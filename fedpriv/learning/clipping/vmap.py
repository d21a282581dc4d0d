"""Per-record gradients of any differentiable function of one record, by vectorised autograd."""

from __future__ import annotations

import warnings
from functools import partial
from typing import TYPE_CHECKING

from torch.func import vjp, vmap

from fedpriv.learning.clipping.dense import slopes
from fedpriv.learning.clipping.factors import Rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from fedpriv.learning.batch import RecordBatch
    from fedpriv.learning.losses import Loss


def vmap_factors(
    scores: Callable[[Tensor, Tensor], Tensor], theta: Tensor, batch: RecordBatch, loss: Loss
) -> tuple[Rows]:
    """The gradient of every record, written out: n·d numbers.

    Not compiled: on the convolutional network of `fedpriv.learning.network` compilation takes half
    a minute and the layer-wise path beats it (benchmarks/gradients.py).

    Args:
        scores: Parameters and features (n, p) to scores (n, k), record by record.
        theta: (d,).
        batch: The records.
        loss: The loss.
    """
    errors_at = partial(slopes, loss)
    return (Rows(vmap_rows(scores, theta, batch.features, batch.labels, errors_at)),)


def vmap_rows(
    scores: Callable[[Tensor, Tensor], Tensor],
    theta: Tensor,
    features: Tensor,
    labels: Tensor,
    errors_at: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """The gradients of `vmap_factors`, (n, d); ``errors_at`` has the derivatives by scores."""

    def gradient(record: Tensor, label: Tensor) -> Tensor:
        record, label = record.unsqueeze(0), label.unsqueeze(0)
        score, pull_back, *_ = vjp(lambda vector: scores(vector, record), theta)
        result: Tensor = pull_back(errors_at(score, label))[0]
        return result

    with warnings.catch_warnings():
        # Layers such as LSTM are then computed record by record: slower, but equally correct.
        warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
        return vmap(gradient)(features, labels)
