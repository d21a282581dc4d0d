"""Gradient inversion of a linear model: a record, read off the gradient that it adds to a sum.

The gradient of ℓ(θx, y) is a multiple of x for every score: ∇ = s ⊗ x. So the gradient of one
record reveals the record, up to a factor; and an intercept, a feature known to everybody, gives the
factor, and with it the label and the length (Phong, Aono, Hayashi, Wang and Moriai 2017). Clipping
only changes the factor, so it protects nothing. Noise does, and so does a sum over many records,
from which no single one can be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedpriv._validate import require_count

if TYPE_CHECKING:
    from numpy.typing import NDArray


def read_record(gradient: NDArray[np.float64], *, outputs: int = 1) -> NDArray[np.float64]:
    """The direction of the record x behind a gradient s ⊗ x, of length 1; zeros if there is none.

    The row of the score that moved most is x times its slope. Its sign is that of the slope, which
    an intercept tells: the last feature of the result is not negative.

    >>> import numpy as np
    >>> read_record(np.array([-3.0, -4.0]))
    array([0.6, 0.8])
    """
    require_count(outputs=outputs)
    rows = gradient.reshape(outputs, -1)
    row = rows[int(np.argmax(np.linalg.norm(rows, axis=1)))]
    length = float(np.linalg.norm(row))
    if length == 0:
        return np.zeros_like(row)
    return np.asarray(row / (length if row[-1] >= 0 else -length))


def likeness(found: NDArray[np.float64], record: NDArray[np.float64]) -> float:
    """The absolute cosine between the reconstruction and the record: 1 is a perfect match."""
    lengths = float(np.linalg.norm(found) * np.linalg.norm(record))
    return abs(float(found @ record)) / lengths if lengths else 0.0
