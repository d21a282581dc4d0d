"""The client of `flower_rounds`, in a module that Ray's workers import, to keep its records."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

if TYPE_CHECKING:
    from torch import Tensor

WIDTH, CLIP_NORM = 784, 0.3


@cache
def records(index: int, size: int) -> tuple[Tensor, Tensor]:
    """The records of one client, made once in every worker process."""
    rng = np.random.default_rng(index)
    x = torch.from_numpy(rng.standard_normal((size, WIDTH), np.float32) / np.float32(28))
    return x, torch.from_numpy(rng.choice(np.array([-1, 1], np.float32), size))


def train(message: Message, context: Context, *, size: int) -> Message:
    """The sum of the clipped gradients: a slope times a record, its norm in closed form."""
    x, y = records(int(str(context.node_config["partition-id"])), size)
    theta = torch.from_numpy(message.content.array_records["arrays"]["theta"].numpy().copy())
    slopes = -y * torch.sigmoid(-y * (x @ theta))
    norms = slopes.abs() * torch.linalg.vector_norm(x, dim=1)
    total = (slopes * (CLIP_NORM / norms).clamp(max=1.0)) @ x
    content = RecordDict(
        {
            "arrays": ArrayRecord({"theta": Array(total.numpy())}),
            "metrics": MetricRecord({"num-examples": 1}),
        }
    )
    return Message(content=content, reply_to=message)


def client_app(size: int) -> ClientApp:
    """An app of clients with ``size`` records each."""
    app = ClientApp()
    app.train()(partial(train, size=size))
    return app
