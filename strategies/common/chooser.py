"""Chooser: what a strategy asks of networks that choose its noise and its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from fedpriv.learning.protector import State, Surroundings


class Chooser(Protocol):
    """What is asked of a protector; whatever it answers, the strategy stays within its budget."""

    def start(self, dimension: int) -> State:
        """Before the first round."""
        ...

    def schedule(
        self, norm: Tensor, *, elapsed: float, left: Tensor, around: Surroundings, state: State
    ) -> tuple[Tensor, State]:
        """Noise relative to the reference, for a noisy norm."""
        ...

    def project(
        self, gradient: Tensor, *, noise: Tensor, elapsed: float, around: Surroundings, state: State
    ) -> tuple[Tensor, State]:
        """How to move the model, for a noisy gradient."""
        ...
