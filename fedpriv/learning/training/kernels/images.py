"""Convolution and max-pooling of small batches of images, compiled.

Images are stored channel by channel, (channels, columns), and in a channel pixel by pixel, each
pixel of all images of the batch together. So whatever the strides and the padding, numbers are
moved by runs of a batch; and a convolution is one product of its kernels with *patches* (what a
kernel sees at every position, one row per weight), long enough for vector instructions even where
images have shrunk to a few pixels. Columns are filled up to whole vectors; beyond the last pixel
they are zero in patches and in errors, so that they add nothing.

Sizes are those of one layer: channels, height, width in; channels, height, width out; height and
width of the kernel, of the stride, of the padding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv._compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray


@compiled()
def _copy(source: NDArray[Any], start: int, target: NDArray[Any], place: int, count: int) -> None:
    these, those = source[start : start + count], target[place : place + count]
    for t in range(count):
        those[t] = these[t]


@compiled()
def _add(source: NDArray[Any], start: int, target: NDArray[Any], place: int, count: int) -> None:
    these, those = source[start : start + count], target[place : place + count]
    for t in range(count):
        those[t] += these[t]


@compiled()
def planes_size(sizes: NDArray[np.int64], count: int) -> int:
    """Numbers in the planes of one channel: see `_split`."""
    high = -(-(sizes[1] + 2 * sizes[10]) // sizes[8])
    wide = -(-(sizes[2] + 2 * sizes[11]) // sizes[9])
    return int(sizes[8] * sizes[9] * high * wide * count)


@compiled()
def _split(
    image: NDArray[Any], sizes: NDArray[np.int64], count: int, planes: NDArray[Any], back: bool
) -> None:
    """Sort the pixels of a padded channel into planes, by their position within a stride; or back.

    The pixels that a kernel's weight sees along a line are then adjacent, whatever the stride.
    """
    high, wide, down, right = sizes[1], sizes[2], sizes[8], sizes[9]
    above, left = sizes[10], sizes[11]
    run, stride = (wide, wide) if right == 1 else (1, right)
    for place in range(down * right):
        plane, y, x = planes[place], place // right, place % right
        first = (left - x + right - 1) // right  # the first column that is not padding
        line = (above - y + down - 1) // down * down + y - above
        while line < high:
            target = plane[(line + above) // down]
            across, start = first * right + x - left, first * count
            while across < wide:
                pixel = (line * wide + across) * count
                if back:
                    _copy(target, start, image, pixel, run * count)
                else:
                    _copy(image, pixel, target, start, run * count)
                across += stride
                start += count
            line += down


@compiled()
def fill_patches(
    images: NDArray[Any],
    sizes: NDArray[np.int64],
    count: int,
    scratch: NDArray[Any],
    patches: NDArray[Any],
) -> None:
    """Write what the kernel sees at every position, (channels × kernel, columns)."""
    channels, rows, run = sizes[0], sizes[4], sizes[5] * count
    tall, broad, down, right = sizes[6], sizes[7], sizes[8], sizes[9]
    planes, q = _planes(scratch, sizes, count), 0
    for c in range(channels):
        _split(images[c], sizes, count, planes, False)
        for ky in range(tall):
            for kx in range(broad):
                patch, plane = patches[q], planes[ky % down * right + kx % right]
                for y in range(rows):
                    _copy(plane[y + ky // down], kx // right * count, patch, y * run, run)
                patch[rows * run :] = 0
                q += 1


@compiled()
def add_patches(
    patches: NDArray[Any],
    sizes: NDArray[np.int64],
    count: int,
    scratch: NDArray[Any],
    images: NDArray[Any],
) -> None:
    """Write into every pixel the sum of what came from it to the patches."""
    channels, rows, run = sizes[0], sizes[4], sizes[5] * count
    tall, broad, down, right = sizes[6], sizes[7], sizes[8], sizes[9]
    q = 0
    for c in range(channels):
        planes = _planes(scratch, sizes, count)
        for ky in range(tall):
            for kx in range(broad):
                patch, plane = patches[q], planes[ky % down * right + kx % right]
                for y in range(rows):
                    _add(patch, y * run, plane[y + ky // down], kx // right * count, run)
                q += 1
        _split(images[c], sizes, count, planes, True)


@compiled()
def _planes(scratch: NDArray[Any], sizes: NDArray[np.int64], count: int) -> NDArray[Any]:
    """Planes of zeros, (places in a stride, lines, columns)."""
    wide = -(-(sizes[2] + 2 * sizes[11]) // sizes[9]) * count
    numbers, places = planes_size(sizes, count), sizes[8] * sizes[9]
    scratch[:numbers] = 0
    return scratch[:numbers].reshape((places, numbers // (places * wide), wide))


@compiled()
def pool(
    images: NDArray[Any],
    sizes: NDArray[np.int64],
    count: int,
    scratch: NDArray[Any],
    pooled: NDArray[Any],
    chosen: NDArray[np.int32],
) -> None:
    """Write the largest pixel of every window, and which column it is: the first, if several.

    First for windows at all pixels, in long runs; then those that the strides leave are picked.
    """
    channels, high, wide, rows, columns = sizes[0], sizes[1], sizes[2], sizes[4], sizes[5]
    tall, broad, down, right = sizes[6], sizes[7], sizes[8], sizes[9]
    reach = ((tall - 1) * wide + broad - 1) * count
    used = high * wide * count - reach
    largest, where = scratch[:used], np.empty(used, np.int32)
    run = columns * count if right == 1 else count
    for c in range(channels):
        source = images[c]
        for t in range(used):
            largest[t] = source[t]
            where[t] = np.int32(t)
        for k in range(1, tall * broad):
            _keep_larger(source, (k // broad * wide + k % broad) * count, largest, where)
        for y in range(rows):
            for x in range(1 if right == 1 else columns):
                place, start = (y * columns + x) * count, (y * down * wide + x * right) * count
                _copy(largest, start, pooled[c], place, run)
                _copy(where, start, chosen[c], place, run)


@compiled()
def _keep_larger(
    source: NDArray[Any], offset: int, largest: NDArray[Any], where: NDArray[np.int32]
) -> None:
    moved, shift = source[offset:], np.int32(offset)
    for t in range(len(largest)):
        larger = moved[t] > largest[t]
        largest[t] = moved[t] if larger else largest[t]
        where[t] = np.int32(t) + shift if larger else where[t]


@compiled()
def pool_back(
    errors: NDArray[Any],
    sizes: NDArray[np.int64],
    count: int,
    chosen: NDArray[np.int32],
    images: NDArray[Any],
) -> None:
    """Add every error to the pixel that was the largest of its window."""
    channels, used = sizes[0], count * sizes[4] * sizes[5]
    for c in range(channels):
        source, where, target = errors[c], chosen[c], images[c]
        for k in range(used):
            target[where[k]] += source[k]


@compiled()
def to_vectors(images: NDArray[Any], pixels: int, count: int, vectors: NDArray[Any]) -> None:
    """From images to one vector a record, channel by channel."""
    for i in range(count):
        vector = vectors[i]
        for c in range(len(images)):
            for k in range(pixels):
                vector[c * pixels + k] = images[c, k * count + i]


@compiled()
def to_images(vectors: NDArray[Any], pixels: int, count: int, images: NDArray[Any]) -> None:
    """Inverts `to_vectors`."""
    for i in range(count):
        vector = vectors[i]
        for c in range(len(images)):
            for k in range(pixels):
                images[c, k * count + i] = vector[c * pixels + k]
