"""Images of digits as data sets: all ten classes, or one pair such as ``3v5``."""

from __future__ import annotations

import re
from math import isqrt, sqrt
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.data.dataset import Dataset, Records, signs
from fedpriv.data.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Pixels = NDArray[np.uint8] | NDArray[np.float64]


def digit_dataset(
    name: str,
    variant: str,
    *,
    train: tuple[Pixels, NDArray[np.int64]],
    test: tuple[Pixels, NDArray[np.int64]],
    white: int,
) -> Dataset:
    """Pixels divided by ``white``, their largest possible value; labels by ``variant``.

    Args:
        name: The data set's name without the variant.
        variant: Empty for the ten classes; ``AvB`` keeps two digits: A is +1 and B is −1.
        train: Pixels and digits to train on.
        test: Pixels and digits to test on.
        white: The largest value a pixel can take, by the format.
    """
    pair = _parse_pair(name, variant)

    def records(pixels: Pixels, digits: NDArray[np.int64]) -> Records:
        y: NDArray[np.int64] | NDArray[np.float32] = digits.astype(np.int64)
        if pair is not None:
            kept = np.isin(digits, pair)
            pixels, y = pixels[kept], signs(digits[kept] == pair[0])
        return Records(X=np.divide(pixels, white, dtype=np.float32), y=y)

    pixels = train[0].shape[1]
    side = isqrt(pixels)
    return Dataset(
        name=f"{name}:{variant}" if variant else name,
        task="binary" if pair else "multiclass",
        train=records(*train),
        test=records(*test),
        feature_names=tuple(f"pixel-{i}" for i in range(pixels)),
        max_norm=sqrt(pixels),
        classes=(str(pair[1]), str(pair[0])) if pair else tuple("0123456789"),
        image_shape=(1, side, side),
    )


def _parse_pair(name: str, variant: str) -> tuple[int, int] | None:
    if not variant:
        return None
    match = re.fullmatch(r"([0-9])v([0-9])", variant)
    if match is None or match[1] == match[2]:
        raise DataError(
            f"a pair of {name} is two different digits, as in '{name}:3v5'; got {variant!r}."
        )
    return int(match[1]), int(match[2])
