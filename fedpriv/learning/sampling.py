"""Poisson sampling: every record joins a round on its own coin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedpriv._validate import require_non_negative, require_rate

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_FINEST_CELL = 2.0**-53


def poisson_sample(
    records: int, *, rate: float, uniforms: Callable[[int], NDArray[np.float64]]
) -> NDArray[np.int64]:
    """Indices of the records in this round, increasing; each is included independently.

    Guarantee. For independent uniforms on the multiples of 2⁻⁵³ below 1, such as ``rng.random`` of
    a numpy generator, or on the midpoints of 2⁵² equal cells, a record is included with probability
    in (rate - 2⁻⁵², rate]: never more than the accountant assumes. Amplification by sampling also
    needs the sample to stay secret, so a release draws from a cryptographic source; a seeded
    generator is for simulations. The size of the sample is itself private: divide a sum by the
    expected size, rate × records, never by the realised one.

    Args:
        records: How many records there are; for stacked parties, of all of them.
        rate: The inclusion probability q.
        uniforms: Called once with ``records``; returns that many independent uniforms in [0, 1].
    """
    require_rate(rate=rate)
    require_non_negative(records=records)
    draws = uniforms(records)
    if draws.shape != (records,):
        raise ValueError(
            f"uniforms must return one number per record, shape {(records,)}, got {draws.shape}."
        )
    return np.flatnonzero(draws <= rate - _FINEST_CELL)
