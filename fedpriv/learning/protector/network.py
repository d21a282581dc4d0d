"""A small LSTM network that treats every coordinate alike."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

UNITS = 20


class Memory(NamedTuple):
    """The network's memory of each row: hidden and cell state of both layers, (4, rows, 20).

    One tensor, so that a checkpoint and a truncated unroll handle it as one thing.
    """

    values: Tensor

    def detached(self) -> Memory:
        """The same numbers without their past: where a truncated unroll is cut."""
        return Memory(self.values.detach())


class CoordinateLstm(nn.Module):
    """Two LSTM layers of 20 units and a linear readout, one row per coordinate, weights shared.

    The number of parameters does not depend on the number of rows, so that what was learned on one
    model can be used on another (Andrychowicz et al. 2016).

    Args:
        features: How many numbers describe a row.
        outputs: How many numbers it answers.
    """

    def __init__(self, *, features: int, outputs: int) -> None:
        super().__init__()
        self.first = nn.LSTMCell(features, UNITS)
        self.second = nn.LSTMCell(UNITS, UNITS)
        self.readout = nn.Linear(UNITS, outputs)

    def start(self, rows: int) -> Memory:
        """An empty memory."""
        return Memory(torch.zeros(4, rows, UNITS))

    def forward(self, rows: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """The answer for every row, and what is remembered of it."""
        h1, c1, h2, c2 = memory.values.unbind()
        h1, c1 = self.first(rows, (h1, c1))
        h2, c2 = self.second(h1, (h2, c2))
        return self.readout(h2), Memory(torch.stack((h1, c1, h2, c2)))


def seeded(network: CoordinateLstm, generator: torch.Generator) -> CoordinateLstm:
    """Weights uniform in ±1/√20, as is usual, from ``generator``; a readout that begins at zero.

    No global generator is touched. A zero readout means: begin with the middle of the range of
    noise, and without moving the model.
    """
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.uniform_(-(UNITS**-0.5), UNITS**-0.5, generator=generator)
        for parameter in network.readout.parameters():
            parameter.zero_()
    return network
