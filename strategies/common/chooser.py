"""Chooser: the interface of the networks that choose a strategy's noise and steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from fedpriv.learning.protector import State, Surroundings


class Chooser(Protocol):
    """What a protector answers; whatever it says, the strategy stays within its budget."""

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
