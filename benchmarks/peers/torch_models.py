"""The networks and records of the benchmark of federated averaging, for peers on PyTorch."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

WIDTH = 784
MODELS = ("logistic", "mlp-20", "mlp-128", "cnn")
BATCH, LEARNING_RATE, CLIP_NORM = 10, 0.1, 1.0


def network(name: str) -> nn.Module:
    """One of the models, with PyTorch's own initial weights."""
    match name:
        case "logistic":
            return nn.Linear(WIDTH, 1, bias=False)
        case "mlp-20" | "mlp-128":
            hidden = int(name.removeprefix("mlp-"))
            return nn.Sequential(nn.Linear(WIDTH, hidden), nn.ReLU(), nn.Linear(hidden, 10))
        case "cnn":
            return nn.Sequential(
                nn.Unflatten(1, (1, 28, 28)),
                nn.Conv2d(1, 16, 8, stride=2, padding=3),
                nn.ReLU(),
                nn.MaxPool2d(2, 1),
                nn.Conv2d(16, 32, 4, stride=2),
                nn.ReLU(),
                nn.MaxPool2d(2, 1),
                nn.Flatten(),
                nn.Linear(512, 32),
                nn.ReLU(),
                nn.Linear(32, 10),
            )
    raise ValueError(f"model must be one of {', '.join(MODELS)}; got {name!r}.")


def records(index: int, size: int, name: str) -> tuple[Tensor, Tensor]:
    """The records of one party: features of norm about 1, and labels that suit the model."""
    rng = np.random.default_rng(index)
    x = torch.from_numpy(rng.standard_normal((size, WIDTH), np.float32) / np.float32(28))
    if name == "logistic":
        return x, torch.from_numpy(rng.integers(0, 2, size).astype(np.float32))
    return x, torch.from_numpy(rng.integers(0, 10, size))


def loss(scores: Tensor, labels: Tensor) -> Tensor:
    """The mean loss of a batch: cross-entropy of one score or of several."""
    if scores.shape[1] == 1:
        return binary_cross_entropy_with_logits(scores[:, 0], labels)
    return cross_entropy(scores, labels)
