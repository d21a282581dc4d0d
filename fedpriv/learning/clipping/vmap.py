"""Per-record gradients of any differentiable function of one record, by vectorised autograd."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.func import vjp, vmap

from fedpriv.learning.clipping.dense import slopes
from fedpriv.learning.clipping.factors import Rows
from fedpriv.learning.clipping.isolation import record_by_record

if TYPE_CHECKING:
    from collections.abc import Callable

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


def one_by_one(
    scores: Callable[[Tensor, Tensor], Tensor], theta: Tensor, features: Tensor
) -> Tensor:
    """Scores (n, k), each from a call of ``scores`` that sees one record.

    By way of `vjp`, under which vmap knows recurrent layers; so the activations of all records are
    in memory.
    """

    def score(record: Tensor) -> Tensor:
        found: Tensor = vjp(lambda vector: scores(vector, record.unsqueeze(0)), theta)[0]
        return found[0]

    with record_by_record():
        found: Tensor = vmap(score)(features)
        return found


def vectorise_recurrent(module: nn.Module) -> None:
    """Let vmap compute recurrent layers: they write into their first state, which is no record's.

    PyTorch makes that state of zeros, of one batch; vmap refuses to write rows of many records into
    it. With zeros made from the input every record has its own.
    """
    for layer in module.modules():
        if isinstance(layer, nn.RNNBase):
            layer.register_forward_pre_hook(_with_state)


def _with_state(layer: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...] | None:
    inputs, *given = arguments
    if not isinstance(layer, nn.RNNBase) or not isinstance(inputs, Tensor):
        return None
    width = layer.proj_size or layer.hidden_size
    count = (1 + layer.bidirectional) * layer.num_layers
    rows = (inputs.shape[0 if layer.batch_first else 1],) if inputs.ndim == 3 else ()
    zeros = [inputs.new_zeros((count, *rows, size)) for size in (width, layer.hidden_size)]
    if not isinstance(layer, nn.LSTM):
        return inputs, zeros[0] + given[0] if given and given[0] is not None else zeros[0]
    if given and given[0] is not None:
        zeros = [zero + state for zero, state in zip(zeros, given[0], strict=True)]
    return inputs, tuple(zeros)


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

    with record_by_record():
        return vmap(gradient)(features, labels)
