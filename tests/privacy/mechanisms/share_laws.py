"""Shares of noise of every law, and what one share is by the definition of its law."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import nbinom, poisson

from fedpriv.privacy.mechanisms.shares import SHARE_LAWS, NoiseShare

SHARES = {
    "skellam": NoiseShare(law="skellam", parameter=7.5, minimum=4, colluders=1),
    "discrete-gaussian": NoiseShare(law="discrete-gaussian", parameter=2.5, minimum=4, colluders=1),
    "polya": NoiseShare(law="polya", parameter=6.0, minimum=4, colluders=1),
}
every_law = pytest.mark.parametrize("law", SHARE_LAWS)


def one_share(share: NoiseShare) -> NDArray[np.float64]:
    """P(share = k), from the definition of its law; k = 0 in the middle."""
    if share.law == "discrete-gaussian":
        k = np.arange(-60, 61)
        weights = np.exp(-(k**2) / (2 * share.parameter**2))
        return np.asarray(weights / weights.sum())
    if share.law == "skellam":
        half = poisson.pmf(np.arange(80), share.parameter / 2)
    else:
        half = nbinom.pmf(np.arange(400), 1 / share.honest, -np.expm1(-1 / share.parameter))
    return np.convolve(half, half[::-1])
