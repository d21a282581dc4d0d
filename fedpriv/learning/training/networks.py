"""Local training of sequential networks, such as convolutional ones, by compiled loops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedpriv.learning.training.compiled import CompiledTraining
from fedpriv.learning.training.kernels.sequential import train_sequence
from fedpriv.learning.training.kernels.slopes import loss_code
from fedpriv.learning.training.sequence import sequence_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fedpriv.learning.losses import Loss
    from fedpriv.learning.models import Model
    from fedpriv.learning.training.parties import Parties
    from fedpriv.learning.training.sequence import Sequence
    from fedpriv.learning.training.settings import LocalSgd

_TOGETHER = 16  # records that go through the network together: their patches stay in a cache


class SequentialTraining(CompiledTraining):
    """Local training of a network whose layers follow one another: see `Sequence`."""

    def __init__(
        self,
        dimension: int,
        sequence: Sequence,
        code: tuple[int, float],
        parties: Parties,
        settings: LocalSgd,
    ) -> None:
        super().__init__(dimension, code, parties, settings)
        self._sequence = sequence

    @classmethod
    def of(
        cls, model: Model, loss: Loss, parties: Parties, settings: LocalSgd
    ) -> SequentialTraining | None:
        """The training of a network and a loss that compiled code knows; None for others."""
        sequence, code = sequence_of(model, records=_TOGETHER), loss_code(loss)
        if sequence is None or code is None:
            return None
        return cls(model.dimension, sequence, code, parties, settings)

    def _train(
        self,
        key: np.uint64,
        group: NDArray[np.int64],
        theta: NDArray[Any],
        shift: NDArray[Any],
        rows: NDArray[Any],
    ) -> None:
        parties, records, network = self._group(group), self._records, self._sequence
        layers = (network.table, network.rooms)
        train_sequence(key, parties, records, theta, shift, *layers, self._rules, rows)
