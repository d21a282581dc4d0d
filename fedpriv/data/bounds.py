"""Public bounds on features: scale by constants, append an intercept, enforce ‖x‖₂ ≤ B.

Every sensitivity downstream relies on the norm of a record, so the bound is enforced here, on the
float32 numbers that the computation will use, for any finite input. No constant comes from the
records: a scale read off the data (its maximum, its mean) would itself be an unpaid release.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from fedpriv._validate import require_choice, require_positive
from fedpriv.data.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Scaling = Literal["clip", "divide"]
SCALINGS: tuple[Scaling, ...] = ("clip", "divide")

# A row is scaled when its norm exceeds B(1 − 2⁻²³), and then to B(1 − 2⁻²²). Rounding to float32
# changes a norm by a factor of at most 1 + 2⁻²⁴, and a float64 sum of squares errs by far less, so
# the result stays below B however it is summed, and below the first threshold: enforcing the bound
# twice changes nothing more.
_TOUCH = 1 - 2.0**-23
_TARGET = 1 - 2.0**-22

# Squares of numbers in this range, and their sums, neither overflow nor vanish in float32.
_SMALLEST, _LARGEST = 1e-15, 1e15


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Feature bounds: how features become vectors of bounded norm.

    Attributes:
        norm: B, the bound on ‖x‖₂ with the intercept included.
        intercept: The constant appended as last feature; 0 appends none. It counts in the norm:
            a bound enforced before appending it would understate every sensitivity.
        scaling: ``clip`` scales a row by min(1, B/‖x‖), which keeps short rows as they are;
            ``divide`` scales all rows by one public constant, B over the largest possible norm,
            which keeps their proportions, and then clips, so that the bound never rests on a
            claim about the records.
    """

    norm: float = 1.0
    intercept: float = 1.0
    scaling: Scaling = "clip"

    def __post_init__(self) -> None:
        require_choice(SCALINGS, scaling=self.scaling)
        if not _SMALLEST <= self.norm <= _LARGEST:
            raise ValueError(
                f"norm must lie in [{_SMALLEST}, {_LARGEST}], so that squares fit float32; "
                f"got {self.norm!r}."
            )
        if not abs(self.intercept) <= _LARGEST:
            raise ValueError(
                f"intercept must be a number of size at most {_LARGEST}, got {self.intercept!r}."
            )


def enforce(
    X: NDArray[np.float32], bounds: Bounds, *, max_norm: float | None = None
) -> NDArray[np.float32]:
    """A copy of ``X`` with the intercept appended and every row norm at most ``bounds.norm``.

    Guarantee: for every finite float32 input, the norm of each float32 row of the result, taken
    in float64, is at most ``bounds.norm``. Applied again without an intercept it changes nothing.

    Args:
        X: Features, float32 (n, d).
        bounds: What to enforce.
        max_norm: A public bound on the norm of a row of ``X``; needed by ``divide`` alone.
    """
    n, d = X.shape
    result = np.empty((n, d + (bounds.intercept != 0)), np.float32)
    result[:, :d] = X
    result[:, d:] = bounds.intercept
    # float32 squares can overflow and vanish; their float64 squares cannot.
    norms = np.sqrt(np.einsum("ij,ij->i", result, result, dtype=np.float64))
    if not np.isfinite(norms).all():
        raise DataError("X must be finite; at least one entry is NaN or infinite.")
    common = 1.0
    if bounds.scaling == "divide":
        if max_norm is None:
            raise ValueError("max_norm must be given for scaling = 'divide'.")
        require_positive(max_norm=max_norm)
        common = bounds.norm / float(np.hypot(max_norm, bounds.intercept))
    factors = np.full(n, common)
    too_long = norms * common > bounds.norm * _TOUCH
    factors[too_long] = bounds.norm * _TARGET / norms[too_long]
    np.multiply(result, factors[:, None], out=result, casting="same_kind")
    return result


def to_unit_interval(
    values: NDArray[np.float64], low: NDArray[np.float64] | float, high: NDArray[np.float64] | float
) -> NDArray[np.float64]:
    """Map the public range [low, high] onto [−1, 1]; values outside move to the nearest end.

    Centred on purpose: features in [0, 1] are nearly parallel to a constant intercept, which costs
    curvature, and with it accuracy at every regularisation.
    """
    inside = np.clip(values, low, high)  # first: numbers far outside would overflow, with a warning
    scaled = 2 * ((inside - low) / (np.asarray(high) - low)) - 1
    return np.clip(scaled, -1, 1)
