"""The client of `flower_averaging`, in a module that Ray's workers import, to keep its records."""

from __future__ import annotations

from functools import cache, partial

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from benchmarks.peers import torch_models
from benchmarks.peers.torch_models import BATCH, LEARNING_RATE, network

records = cache(torch_models.records)


def train(message: Message, context: Context, *, name: str, size: int, epochs: int) -> Message:
    """Epochs of SGD over shuffled batches; the answer is the model."""
    torch.set_num_threads(1)
    x, y = records(int(str(context.node_config["partition-id"])), size, name)
    module = network(name)
    module.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    optimiser = torch.optim.SGD(module.parameters(), LEARNING_RATE)
    for _ in range(epochs):
        order = torch.randperm(size)
        for first in range(0, size, BATCH):
            batch = order[first : first + BATCH]
            optimiser.zero_grad()
            torch.autograd.backward(torch_models.loss(module(x[batch]), y[batch]))
            optimiser.step()
    content = RecordDict(
        {
            "arrays": ArrayRecord(module.state_dict()),
            "metrics": MetricRecord({"num-examples": size}),
        }
    )
    return Message(content=content, reply_to=message)


def client_app(name: str, size: int, epochs: int) -> ClientApp:
    """An app of clients with ``size`` records each."""
    app = ClientApp()
    app.train()(partial(train, name=name, size=size, epochs=epochs))
    return app
