"""Device of a network: the processor, or an accelerator that computes as exactly as clipping takes.

Clipping relies on norms in float64 and on products in the full precision of float32.
"""

from __future__ import annotations

import torch


def resolve_device(name: str) -> str:
    """The device that ``name`` stands for: "auto" is the first GPU (CUDA), or the processor.

    Raises:
        ValueError: The device does not exist, or has no float64.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        works = torch.zeros(1, dtype=torch.float64, device=name).add(1).item() == 1
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        reason = f"{error}".strip().partition("\n")[0].partition(". ")[0]
        raise ValueError(
            f"device {name!r} cannot be used here ({reason or type(error).__name__}). It must be "
            "there, and compute in float64, as norms of gradients are. Use 'cpu', or 'auto' for a "
            "GPU where there is one."
        ) from None
    if not works:
        raise ValueError(f"device {name!r} does not compute. Use 'cpu'.")
    return name


def require_exact_products() -> None:
    """Refuse products of float32 that may be rounded further, as TF32 and bfloat16 do.

    A user's own file may have asked for them, for the whole process.
    """
    precision = torch.get_float32_matmul_precision()
    if precision != "highest":
        raise RuntimeError(
            f"torch's float32 matmul precision must be 'highest', got {precision!r}: clipped "
            "gradients would be added up as other numbers than were measured. Leave "
            "torch.set_float32_matmul_precision alone."
        )
