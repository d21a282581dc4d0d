"""Laws of the samplers, each with its probabilities by an independent formula."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mpmath.ctx_mp import MPContext
from numpy.typing import NDArray
from scipy.stats import laplace, norm, poisson

from fedpriv.privacy.samplers import (
    DiscreteGaussian,
    DiscreteLaplace,
    RoundedGaussian,
    RoundedLaplace,
    Skellam,
)
from fedpriv.privacy.samplers.sampler import IntegerSampler

Pmf = Callable[[NDArray[np.int64], float], NDArray[np.float64]]


def _normalised(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    normalised: NDArray[np.float64] = weights / weights.sum()
    return normalised


def _skellam_pmf(k: NDArray[np.int64], scale: float) -> NDArray[np.float64]:
    mean = scale**2 / 2
    jumps = poisson.pmf(
        np.arange(max(0, int(mean - 15 * scale)), int(mean + 15 * scale + 50)), mean
    )
    both: NDArray[np.float64] = np.convolve(jumps, jumps[::-1])
    reach = jumps.size - 1
    return np.where(np.abs(k) <= reach, both[np.clip(k, -reach, reach) + reach], 0.0)


LAWS: dict[str, tuple[Callable[[float], IntegerSampler], Pmf]] = {
    "discrete-gaussian": (
        lambda scale: DiscreteGaussian(stddev=scale),
        lambda k, scale: _normalised(np.exp(-(k**2) / (2 * scale**2))),
    ),
    "rounded-gaussian": (
        lambda scale: RoundedGaussian(stddev=scale),
        lambda k, scale: norm.cdf((k + 0.5) / scale) - norm.cdf((k - 0.5) / scale),
    ),
    "discrete-laplace": (
        lambda scale: DiscreteLaplace(scale=scale),
        lambda k, scale: _normalised(np.exp(-np.abs(k) / scale)),
    ),
    "rounded-laplace": (
        lambda scale: RoundedLaplace(scale=scale),
        lambda k, scale: laplace.cdf((k + 0.5) / scale) - laplace.cdf((k - 0.5) / scale),
    ),
    "skellam": (lambda scale: Skellam(variance=scale**2), _skellam_pmf),
}
every_law = pytest.mark.parametrize("law", LAWS)


def exactly(bits: int = 256) -> Any:
    context = MPContext()
    context.prec = bits
    return context
