"""Federated averaging with client-level privacy in Flower: the accuracy of its own strategies.

Arguments: file of records, JSON of settings. Prints one JSON object: accuracy, and the noise
multiplier. Flower's wrappers for fixed and for adaptive clipping get the replies of clients that
train in this process: clipping, averaging and noise are theirs, and so is the accountant (Rényi)
that the noise multiplier of fixed clipping comes from. Its adaptive clipping has no accountant; it
gets the multiplier of fixed clipping.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
    Strategy,
)
from flwr.supercore.privacy_accounting import (
    GaussianPrivacyEvent,
    NeighboringRelation,
    PrivacyConfig,
    SamplingMethod,
)
from flwr.supercore.privacy_accounting.rdp_accountant import RdpAccountant
from flwr.supercore.task_identity import TaskIdentity
from scipy.optimize import brentq
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

if TYPE_CHECKING:
    from flwr.serverapp import Grid


class Nodes:
    """What strategies ask a grid for before they have sent anything."""

    def __init__(self, parties: int) -> None:
        self._parties = parties

    def get_node_ids(self) -> list[int]:
        """Everybody is there."""
        return list(range(1, self._parties + 1))


def noise_multiplier(settings: dict[str, Any]) -> float:
    """The least that Flower's own accountant allows."""
    config = PrivacyConfig(
        target_delta=settings["delta"],
        population_size=settings["parties"],
        neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
        sampling_method=SamplingMethod.NO_AMPLIFICATION,
    )

    def excess(noise: float) -> float:
        accountant = RdpAccountant(config)
        event = GaussianPrivacyEvent(noise, settings["parties"], settings["parties"])
        accountant.compose(event, settings["rounds"])
        return accountant.get_epsilon(settings["delta"]) - float(settings["epsilon"])

    return float(brentq(excess, 0.1, 1000.0, xtol=1e-4))


def wrapped(settings: dict[str, Any], noise: float) -> Strategy:
    """FedAvg under one of Flower's two wrappers."""
    parties = settings["parties"]
    average = FedAvg(
        fraction_train=1.0,
        fraction_evaluate=0.0,
        min_train_nodes=parties,
        min_available_nodes=parties,
    )
    if settings["adaptive"]:
        return DifferentialPrivacyServerSideAdaptiveClipping(
            average, noise, parties, initial_clipping_norm=settings["clip"]
        )
    return DifferentialPrivacyServerSideFixedClipping(average, noise, settings["clip"], parties)


def trained(module: nn.Module, x: Tensor, y: Tensor, settings: dict[str, Any]) -> None:
    """An epoch of SGD."""
    optimiser = torch.optim.SGD(module.parameters(), settings["local_learning_rate"])
    order, batch = torch.randperm(len(x)), settings["batch_size"]
    for first in range(0, len(x), batch):
        rows = order[first : first + batch]
        optimiser.zero_grad()
        torch.autograd.backward(cross_entropy(module(x[rows]), y[rows]))
        optimiser.step()


def main(path: str, settings: dict[str, Any]) -> None:
    """Train, and score the last model."""
    logging.disable(logging.CRITICAL)
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1  # messages carry them
    torch.set_num_threads(1)  # faster than two on steps as small as these
    torch.manual_seed(settings["seed"])
    np.random.seed(settings["seed"])  # noqa: NPY002 (Flower draws its noise there)
    records = np.load(path)
    x, y, test_x, test_y = (
        torch.from_numpy(records[name]) for name in ("x", "y", "test_x", "test_y")
    )
    parties, size = settings["parties"], len(x) // settings["parties"]
    module = nn.Linear(x.shape[1], int(y.max()) + 1, bias=False)
    nn.init.zeros_(module.weight)
    noise = noise_multiplier(settings)
    strategy, grid = wrapped(settings, noise), cast("Grid", Nodes(parties))
    model = ArrayRecord(module.state_dict())
    for index in range(1, settings["rounds"] + 1):
        replies: list[Message] = []
        for message in strategy.configure_train(index, model, ConfigRecord(), grid):
            rows = slice(len(replies) * size, (len(replies) + 1) * size)
            module.load_state_dict(model.to_torch_state_dict())
            trained(module, x[rows], y[rows], settings)
            answer = RecordDict(
                {
                    "arrays": ArrayRecord(module.state_dict()),
                    "metrics": MetricRecord({"num-examples": 1}),
                }
            )
            replies.append(Message(answer, reply_to=message))
        found, _ = strategy.aggregate_train(index, replies)
        if found is None:
            raise RuntimeError("Flower aggregated nothing.")
        model = found
    module.load_state_dict(model.to_torch_state_dict())
    right = (module(test_x).argmax(1) == test_y).float().mean()
    print(json.dumps({"accuracy": float(right), "noise multiplier": noise}))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
