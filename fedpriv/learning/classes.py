"""Classes: from scores to predicted classes, for classification tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fedpriv.learning.losses import MarginLoss

if TYPE_CHECKING:
    from torch import Tensor

    from fedpriv.learning.losses import Loss


def classifies(loss: Loss) -> bool:
    """Whether the loss is for classification."""
    return loss.outputs > 1 or isinstance(loss, MarginLoss)


def classes_of(scores: Tensor, loss: Loss) -> Tensor:
    """The predicted class, encoded like the labels: an index, or −1 and +1."""
    if loss.outputs > 1:
        return scores.argmax(1)
    return torch.where(scores >= 0, 1.0, -1.0)
