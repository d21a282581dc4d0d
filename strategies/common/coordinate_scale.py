"""Scales of coordinate-wise clipping (AdaClip, Pichapati et al. 2019): shape and size.

A gradient is clipped to norm 1 as (∇f − a)/b, and noise σ on the result is noise b_i·σ on its
coordinate i. With standard deviations s_i of the coordinates around a, E‖(∇f − a)/b‖² is
Σ s_i²/b_i². Among all b for which that is at most 1, Σb_i², and with it the noise, is least at

    b_i² = s_i·Σ_j s_j                                                   (Lagrange; their Thm. 2).

The shape, b² in proportion to s, is best at every size. The size needs the s_i of *records*, but
the releases are noisy means: like the paper, `adaptive` uses their deviations instead. A mean of
clipped vectors deviates by less than b, though, and by less the more records it has: with large
batches b shrinks from round to round towards √(d·h₁), and descent ends in directions with ever
smaller steps. "fixed" is the default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Size = Literal["fixed", "adaptive"]


def coordinate_scale(
    spread: NDArray[np.float64], *, clip: float, size: Size
) -> NDArray[np.float64]:
    """b of every coordinate.

    Args:
        spread: s, the standard deviation of every coordinate, as far as it is known.
        clip: The root mean square of b, if its size is "fixed".
        size: "fixed", or "adaptive", which follows the spread: b_i² = s_i·Σs.
    """
    if size == "adaptive":
        return np.asarray(np.sqrt(spread * spread.sum()))
    return np.asarray(clip * np.sqrt(spread / spread.mean()))
