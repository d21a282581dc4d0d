"""One step of local SGD, compiled; and the inputs of compiled training, as named tuples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedpriv._compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.learning.training.settings import LocalSgd


class Group(NamedTuple):
    """Parties that are trained one after another, (m,) each.

    Attributes:
        numbers: Their indices among all parties, for their orders.
        starts: Their first records.
        sizes: Their numbers of records, at least 1.
        steps: Their numbers of steps.
    """

    numbers: NDArray[np.int64]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    steps: NDArray[np.int64]


class Records(NamedTuple):
    """The records of all parties: features (n, p), labels (n,), and which have a gradient (n,)."""

    features: NDArray[Any]
    labels: NDArray[Any]
    usable: NDArray[np.bool_]


class Rules(NamedTuple):
    """Settings of local SGD and the loss.

    Attributes:
        rates: η, β, μ, λ: see `LocalSgd`.
        batch_size: Records in a batch; 0 for all of a party.
        loss: The code of the loss, see `fedpriv.learning.training.kernels.slopes`.
        parameter: The parameter of the loss.
    """

    rates: NDArray[np.float64]
    batch_size: int
    loss: int
    parameter: float

    @staticmethod
    def of(settings: LocalSgd, code: tuple[int, float]) -> Rules:
        """The settings for compiled code."""
        slowing = (settings.momentum, settings.proximal, settings.regulariser)
        rates = np.array([settings.learning_rate, *slowing])
        return Rules(rates, settings.batch_size or 0, *code)


@compiled(relaxed={"contract", "nsz"})
def move(
    rates: NDArray[np.float64],
    slope: NDArray[Any],
    theta: NDArray[Any],
    shift: NDArray[Any],
    speed: NDArray[Any],
    weights: NDArray[Any],
) -> None:
    """v ← β·v + slope + λ·w + μ·(w - θ) + shift, then w ← w - η·v; no shift if it is empty."""
    number = weights.dtype.type
    eta, beta = number(rates[0]), number(rates[1])
    mu, lam = number(rates[2]), number(rates[3])
    shifted = len(shift) > 0
    for k in range(len(weights)):
        pull = slope[k] + lam * weights[k] + mu * (weights[k] - theta[k])
        if shifted:
            pull += shift[k]
        speed[k] = beta * speed[k] + pull
        weights[k] -= eta * speed[k]
