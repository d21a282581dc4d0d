"""Budget allocation: the best noise for every round when some rounds matter more than others.

Noise of standard deviation σ_t in round t, in units of the clip norm, spends 1/σ_t² of the squared
GDP parameter, and harms the result by q_t·σ_t². The q_t are called influence.

Lemma. Among all σ with Σσ_t⁻² = R, Σq_tσ_t² is least, (Σ√q_t)²/R, at σ_t² = (1/R)·Σ_i√(q_i/q_t).
Proof: Cauchy–Schwarz on √q_t·σ_t and 1/σ_t; equality where √q_t·σ_t² is constant. Noise that is
correlated between full-batch rounds does no better: docs/schedules.md, "Independent noise".

Influence may range over hundreds of powers of ten, so it is given by its logarithm.
"""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING

import numpy as np

from fedpriv._validate import require_positive

if TYPE_CHECKING:
    from numpy.typing import NDArray

# No round gets more than this many times the noise of the least noisy one. Such a round has hardly
# any influence and spends 10⁻⁸ as much, and its noise still fits the integer samplers.
_MOST_RATIO = 1e4


def least_noise(log_influence: NDArray[np.float64], *, total: float) -> NDArray[np.float64]:
    """σ_t of the Lemma, with Σσ_t⁻² = ``total``."""
    return scaled_noise(-_finite(log_influence=log_influence) / 4, total=total)


def scaled_noise(log_noise: NDArray[np.float64], *, total: float) -> NDArray[np.float64]:
    """The multiple of relative noise, given by its logarithm, with Σσ_t⁻² = ``total``."""
    require_positive(total=total)
    logs = _finite(log_noise=log_noise)
    noise = np.exp(np.minimum(logs - logs.min(), log(_MOST_RATIO)))
    scaled: NDArray[np.float64] = noise * np.sqrt(np.sum(noise**-2) / total)
    return scaled


def harm(log_influence: NDArray[np.float64], noise: NDArray[np.float64]) -> float:
    """Σq_tσ_t², as a multiple of the largest q_t."""
    logs = _finite(log_influence=log_influence)
    return float(np.sum(np.exp(logs - logs.max()) * noise**2))


def gain(log_influence: NDArray[np.float64], noise: NDArray[np.float64]) -> float:
    """How many times less harm ``noise`` does than uniform noise of the same total cost."""
    uniform = scaled_noise(np.zeros_like(noise), total=float(np.sum(noise**-2)))
    return harm(log_influence, uniform) / harm(log_influence, noise)


def _finite(**logarithms: NDArray[np.float64]) -> NDArray[np.float64]:
    ((name, values),) = logarithms.items()
    logs = np.asarray(values, dtype=np.float64)
    if logs.ndim != 1 or not logs.size or not np.isfinite(logs).all():
        raise ValueError(
            f"{name} must be a finite number for each of at least one round, got shape "
            f"{logs.shape}."
        )
    return logs
