"""Fixed point: real answers as integers, whose sum is exact in the ring Z/2^bits.

A secure sum adds integers modulo 2^bits. An answer is divided by a power of two, the step, which is
exact in floating point, and rounded to the nearest integer. What that costs in privacy is known:
two answers that differ by Δ in L2 differ by at most Δ/step + √d after rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, frexp, inf, log2, nextafter, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv._validate import require_count, require_non_negative, require_positive

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ring = NDArray[np.unsignedinteger[Any]]

MAX_PARTIES = 65_536
"""As many as there are points to hold a share: the non-zero elements of GF(65537)."""

NOISE_DEVIATIONS = 6.5
"""Room for noise: a Gaussian leaves ±6.5 deviations with probability 8e-11 per coordinate."""

_RINGS: dict[int, type[np.uint32 | np.uint64]] = {32: np.uint32, 64: np.uint64}
_MAX_EXPONENT = 500  # keeps step, 1/step and every product with them far from overflow
_FINEST = 2.0**-10  # of the coarsest step allowed: below it the inflation is negligible anyway


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedPoint:
    """The grid ``step``·ℤ, with sums in Z/2^``bits``.

    Guarantee. `encode` rounds to nearest, ties to even, without other error: the step is a power of
    two, so scaling is exact. If a sum of encoded answers lies within ±(2^(bits-1) - 1), `decode`
    returns it exactly; otherwise it wraps. `for_sum` chooses step and ring so that it cannot wrap.

    Attributes:
        step: The distance between neighbouring grid points, a power of two.
        bits: The size of the ring, 32 or 64: 4 or 8 bytes per coordinate on the wire.
    """

    step: float
    bits: int = 32

    def __post_init__(self) -> None:
        require_positive(step=self.step)
        mantissa, exponent = frexp(self.step)
        if mantissa != 0.5 or abs(exponent) > _MAX_EXPONENT:
            raise ValueError(
                f"step must be a power of two between 2^-{_MAX_EXPONENT} and 2^{_MAX_EXPONENT}, "
                f"got {self.step!r}. FixedPoint.for_sum chooses one."
            )
        if type(self.bits) is not int or self.bits not in _RINGS:  # 64.0 is, too
            raise ValueError(f"bits must be 32 or 64, got {self.bits!r}.")

    @classmethod
    def for_sum(
        cls,
        *,
        bound: float,
        sensitivity: float,
        dimension: int,
        noise_stddev: float,
        inflation: float = 0.01,
        parties: int = MAX_PARTIES,
    ) -> FixedPoint:
        """The smallest ring, and in it the finest useful step, for a sum that must not wrap.

        In the ring chosen, |Σ| ≤ ``bound`` plus half a step of rounding per party plus
        ±`NOISE_DEVIATIONS` of noise cannot wrap, and rounding raises the L2 sensitivity by a
        factor of at most 1 + ``inflation``: √d·step ≤ inflation·sensitivity.

        Args:
            bound: The largest |Σ_j answer_j| in any coordinate, over all data.
            sensitivity: The L2 sensitivity of the sum, before rounding.
            dimension: The number of coordinates, d.
            noise_stddev: The standard deviation of the noise on a coordinate; 0 without noise.
            inflation: How much rounding may add to the sensitivity, as a fraction of it.
            parties: The largest number of answers in one sum.

        Raises:
            ValueError: When not even 64 bits hold the sum at the step that ``inflation`` asks for.
        """
        require_positive(bound=bound, sensitivity=sensitivity, inflation=inflation)
        require_non_negative(noise_stddev=noise_stddev)
        require_count(dimension=dimension, parties=parties)
        coarsest = 2.0 ** floor(log2(inflation * sensitivity / sqrt(dimension)))
        reach = bound + NOISE_DEVIATIONS * noise_stddev
        for bits in _RINGS:
            room = 2 ** (bits - 1) - 1 - parties / 2
            finest = 2.0 ** ceil(log2(reach / room))
            if finest <= coarsest:
                return cls(step=max(finest, coarsest * _FINEST), bits=bits)
        raise ValueError(
            f"bound = {bound!r} with noise_stddev = {noise_stddev!r} does not fit 64 bits at the "
            f"step that sensitivity = {sensitivity!r}, dimension = {dimension} and inflation = "
            f"{inflation!r} require. Allow more inflation, or bound the answers more tightly."
        )

    @property
    def dtype(self) -> np.dtype[np.uint32 | np.uint64]:
        """The unsigned integers that wrap around at 2^bits."""
        return np.dtype(_RINGS[self.bits])

    def encode(self, answer: NDArray[np.float64], *, bound: float = inf) -> Ring:
        """One answer of shape (d,) as ring elements.

        Raises:
            ValueError: If a coordinate is not finite, exceeds ``bound``, or does not fit the ring.
        """
        if answer.ndim != 1:
            raise ValueError(f"answer must have shape (d,), got {answer.shape}.")
        return self.encode_sum(answer[np.newaxis], bound=bound)

    def encode_sum(self, answers: NDArray[np.float64], *, bound: float = inf) -> Ring:
        """Σ_j encode(answers[j]) in the ring, for answers of shape (m, d): what masking would sum.

        Bit for bit the result of the protocol on the same answers.

        Raises:
            ValueError: If a coordinate is not finite, exceeds ``bound``, or does not fit the ring.
        """
        if answers.ndim != 2 or answers.dtype != np.float64:
            raise ValueError(
                f"answers must be float64 of shape (m, d), got {answers.dtype} {answers.shape}."
            )
        from fedpriv.secagg.numbers.rounded_sums import add_rounded  # it loads a compiler

        limit = self._limit(bound)
        total = np.zeros(answers.shape[1], dtype=np.int64)
        # So few rows at a time that their sum, of integers up to limit + ½, is exact in float64.
        rows = max(1, int(2**52 // max(1.0, limit)))
        if not add_rounded(answers, 1 / self.step, limit, rows, total):
            raise ValueError(
                f"every coordinate of an answer must be finite, within ±{bound!r} (the bound) and "
                f"within ±{limit * self.step!r} (the ring). Nothing was encoded: clip first."
            )
        return total.view(np.uint64).astype(self.dtype)

    def decode(self, total: Ring) -> NDArray[np.int64]:
        """The signed integers that ring elements stand for; times `step`, the real sum."""
        if total.dtype != self.dtype:
            raise ValueError(f"total must be {self.dtype}, got {total.dtype}.")
        signed: NDArray[np.signedinteger[Any]] = total.view(f"i{self.bits // 8}")
        return signed.astype(np.int64)

    def l2_sensitivity(self, *, sensitivity: float, dimension: int) -> float:
        """Δ_int = Δ/step + √d, in integer units; times `step`, what noise is calibrated to.

        Each coordinate of either answer moves by at most 1/2 when it is rounded, so the difference
        of two answers moves by at most 1 per coordinate, √d in L2. Rounded up.
        """
        require_non_negative(sensitivity=sensitivity)
        require_count(dimension=dimension)
        return nextafter(sensitivity / self.step + sqrt(dimension), inf)

    def l1_sensitivity(self, *, sensitivity: float, dimension: int) -> float:
        """Δ_int·min(√d, Δ_int), in integer units, from an L2 ``sensitivity`` before rounding."""
        return l1_bound(
            self.l2_sensitivity(sensitivity=sensitivity, dimension=dimension), dimension
        )

    def _limit(self, bound: float) -> float:
        """The largest coordinate to encode, in steps."""
        return min(
            bound / self.step,
            float(2 ** (self.bits - 1) - 1),
            nextafter(2.0 ** (self.bits - 1), 0.0),  # 2^63 - 1 is not a double
        )


def l1_bound(l2: float, dimension: int) -> float:
    """The largest L1 norm of an integer vector with an L2 norm of at most ``l2``, rounded up.

    l2·√d by Cauchy-Schwarz, and l2² because |z| ≤ z² for integers.
    """
    return nextafter(l2 * min(nextafter(sqrt(dimension), inf), l2), inf)
