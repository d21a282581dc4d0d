"""Local training of many parties from a common model: their updates, or the clipped sum of these.

`LocalTrainer` is the inner loop of federated averaging (McMahan et al. 2017, arXiv:1602.05629).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fedpriv._validate import require_positive
from fedpriv.learning.clipping.clipped_sum import check_records, check_vector
from fedpriv.learning.training.compiled import CompiledTraining
from fedpriv.learning.training.dense import DenseTraining
from fedpriv.learning.training.general import GeneralTraining
from fedpriv.learning.training.kernels.orders import checked_key
from fedpriv.learning.training.kernels.slopes import loss_code
from fedpriv.learning.training.networks import SequentialTraining
from fedpriv.learning.training.parties import Parties
from fedpriv.learning.training.sequence import sequence_of
from fedpriv.learning.training.stacks import dense_stack
from fedpriv.learning.training.summed import RoundedSum

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from fedpriv.learning.batch import RecordBatch
    from fedpriv.learning.losses import Loss
    from fedpriv.learning.models import Model
    from fedpriv.learning.training.settings import LocalSgd

_MOST = 2.0**63  # steps of one update: int64 must hold it


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LocalTrainer:
    """Local SGD of the parties of a batch, from parameters that change from round to round.

    Every party's update follows from θ, its own records and its order (`orders`), computed in the
    precision of the features. A record that is unusable (see `RecordBatch`), or whose class is not
    one of the loss, has gradient zero, but counts in the size of its batch.

    Runs on the calling thread; only vectorised autograd uses PyTorch's configured number of
    threads. Repeatable to the bit on the same machine, for the same batch and number of threads
    (see `place_free`). Threads may share a trainer.

    Attributes:
        model: Any `Model`.
        loss: A loss with as many outputs as the model.
        batch: The records, party by party.
        settings: What a party does.
        first_party: The index of the first party of the batch among all parties: orders, and
            nothing else, follow from it.
    """

    model: Model
    loss: Loss
    batch: RecordBatch
    settings: LocalSgd
    first_party: int = 0
    _parties: Parties = field(init=False)
    _training: CompiledTraining | GeneralTraining = field(init=False)

    def __post_init__(self) -> None:
        check_records(self.model, self.loss, self.batch)
        parties = Parties(batch=self.batch, loss=self.loss, first_party=self.first_party)
        work = (self.model, self.loss, parties, self.settings)
        training = DenseTraining.of(*work) or SequentialTraining.of(*work) or GeneralTraining(*work)
        object.__setattr__(self, "_parties", parties)
        object.__setattr__(self, "_training", training)

    @property
    def place_free(self) -> bool:
        """Whether a party's update does not depend, to the bit, on parties trained with it.

        True for compiled loops, which train the parties one after another; vectorised autograd
        multiplies matrices of several parties together.
        """
        return isinstance(self._training, CompiledTraining)

    def updates(
        self,
        theta: Tensor,
        *,
        key: int,
        joining: NDArray[np.bool_] | None = None,
        shift: Tensor | None = None,
    ) -> NDArray[Any]:
        """w - θ of every party, (m, d), in the precision of the features; nothing is clipped.

        Args:
            theta: The common parameters, (d,).
            key: From 0 to 2⁶⁴ - 1: the key of this round, from which all orders follow.
            joining: (m,), who takes part; None for all. The others' updates are zero.
            shift: (m, d), added to every gradient of a party; None for zero.
        """
        updates = np.zeros((self.batch.parties, self.model.dimension), self._number)
        if shift is not None:
            if tuple(shift.shape) != updates.shape:
                raise ValueError(
                    f"shift must have shape {updates.shape}, one row per party, "
                    f"got {tuple(shift.shape)}."
                )
            shift = shift.to(self._parties.dtype)
        point, chosen = self._point(theta), self._chosen(joining)
        number = checked_key(key)
        for group, rows in self._training.updates(point, key=number, chosen=chosen, shift=shift):
            updates[group] = rows[:, : self.model.dimension]
        return updates

    def clipped_sum(
        self,
        theta: Tensor,
        *,
        key: int,
        clip_norm: float | None,
        weights: NDArray[np.float64],
        step: float,
        bound: float,
        joining: NDArray[np.bool_] | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Σ_j round(w_j·clip(u_j)/step) over the parties, (d,), and ‖u_j‖₂ before clipping, (m,).

        Guarantee. What is rounded has a norm of at most w_j·C, whatever the records are and
        whatever floating point did in training (`summed`). An update that is not finite counts as
        zero, and its norm as infinite. Norms are **private**.

        Args:
            theta: The common parameters, (d,).
            key: From 0 to 2⁶⁴ - 1: the key of this round, from which all orders follow.
            clip_norm: C; None for no clipping, which bounds nothing.
            weights: (m,), from 0 to 1.
            step: The distance of grid points.
            bound: The largest coordinate of a clipped and weighted update, less than 2⁶³ steps and
                at least C; without clipping, a larger one is an error.
            joining: (m,), who takes part; None for all. The others add nothing; their norms are 0.

        Raises:
            ValueError: Without clipping, if an update exceeds the bound.
        """
        require_positive(step=step, bound=bound)
        if bound / step >= _MOST:
            raise ValueError(f"bound must be less than 2^63 steps, got {bound!r} with {step = !r}.")
        _check_weights(weights, self.batch.parties)
        total = RoundedSum(
            dimension=self.model.dimension,
            clip_norm=clip_norm,
            weights=weights,
            step=step,
            bound=bound,
        )
        point, chosen = self._point(theta), self._chosen(joining)
        number = checked_key(key)
        for group, rows in self._training.updates(point, key=number, chosen=chosen, shift=None):
            total.add(group, rows)
        return total.result()

    @property
    def _number(self) -> np.dtype[Any]:
        return np.dtype(np.float32 if self._parties.dtype == torch.float32 else np.float64)

    def _point(self, theta: Tensor) -> Tensor:
        check_vector("theta", theta, self.model)
        return theta.detach().to(self._parties.dtype).contiguous()

    def _chosen(self, joining: NDArray[np.bool_] | None) -> NDArray[np.int64]:
        """The indices of the parties that have something to train on and take part."""
        some = self._parties.sizes > 0
        if joining is not None:
            if joining.shape != some.shape or joining.dtype != np.bool_:
                raise ValueError(
                    f"joining must be booleans of shape {some.shape}, one per party, "
                    f"got {joining.dtype} of shape {joining.shape}."
                )
            some &= joining
        return np.flatnonzero(some)


def place_free(model: Model, loss: Loss) -> bool:
    """Whether trainers of a model and a loss are `LocalTrainer.place_free`."""
    known = dense_stack(model) is not None or sequence_of(model, records=1) is not None
    return known and loss_code(loss) is not None


def _check_weights(weights: NDArray[np.float64], parties: int) -> None:
    if weights.shape != (parties,) or not bool(((weights >= 0) & (weights <= 1)).all()):
        raise ValueError(f"weights must be {parties} numbers from 0 to 1, one per party.")
