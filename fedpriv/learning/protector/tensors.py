"""Float32 tensors as text: shape, and base64 of the little-endian numbers."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

_DTYPE = np.dtype("<f4")


def to_text(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Any]]:
    """Every tensor by its name, JSON-ready."""
    return {
        name: {
            "shape": list(tensor.shape),
            "float32": b64encode(
                np.ascontiguousarray(tensor.detach().numpy(), dtype=_DTYPE).tobytes()
            ).decode(),
        }
        for name, tensor in tensors.items()
    }


def from_text(
    values: Mapping[str, Mapping[str, Any]], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Tensor]:
    """Read back what `to_text` wrote: exactly the names and ``shapes`` expected, all finite."""
    if set(values) != set(shapes):
        raise ValueError(
            f"weights must be exactly {', '.join(sorted(shapes))}; got {', '.join(sorted(values))}."
        )
    return {name: _tensor(name, values[name], shape) for name, shape in shapes.items()}


def _tensor(name: str, value: Mapping[str, Any], shape: tuple[int, ...]) -> Tensor:
    if tuple(value["shape"]) != shape:
        raise ValueError(f"{name} must have shape {shape}, got {tuple(value['shape'])}.")
    numbers = np.frombuffer(b64decode(value["float32"], validate=True), dtype=_DTYPE)
    if numbers.size != int(np.prod(shape)):
        raise ValueError(f"{name} must hold {int(np.prod(shape))} numbers, got {numbers.size}.")
    if not np.isfinite(numbers).all():
        raise ValueError(f"{name} must be finite: a protector with NaN or infinities is refused.")
    return torch.from_numpy(numbers.astype(np.float32).reshape(shape))
