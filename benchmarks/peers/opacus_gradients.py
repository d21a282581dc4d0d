"""Clipped gradient sums by Opacus, timed in its own environment by `benchmarks.gradients`.

Arguments: the folder with the data, the number of threads, seconds to spend on each measurement.
Prints one JSON object: seconds a sum, by network and mode. Leaves the sums in the folder, so that
the caller can see that both compute the same thing.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
import torch
from opacus.grad_sample import (  # type: ignore[import-not-found]
    GradSampleModule,
    GradSampleModuleExpandedWeights,
    GradSampleModuleFastGradientClipping,
)
from opacus.optimizers import (  # type: ignore[import-not-found]
    DPOptimizer,
    DPOptimizerFastGradientClipping,
)
from opacus.utils.fast_gradient_clipping_utils import (  # type: ignore[import-not-found]
    DPLossFastGradientClipping,
)
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable

MODES = ("hooks", "functorch", "ew", "ghost")


class Margin(nn.Module):
    """ln(1 + exp(-y·score)), reduced as Opacus asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.reduction = "sum"

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        """The loss of every record, or their sum."""
        losses = nn.functional.softplus(-labels * scores.squeeze(1))
        return losses if self.reduction == "none" else losses.sum()


def networks() -> dict[str, tuple[nn.Module, nn.Module]]:
    """The networks of the benchmark, each with its criterion."""
    cnn = nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, 16, 8, 2, 3),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(512, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )
    return {
        "linear": (nn.Linear(784, 1, bias=False), Margin()),
        "mlp": (nn.Sequential(nn.Linear(784, 20), nn.Sigmoid(), nn.Linear(20, 1)), Margin()),
        "cnn": (cnn, nn.CrossEntropyLoss(reduction="sum")),
    }


def clipped_sum(
    module: nn.Module, criterion: nn.Module, mode: str, x: Tensor, y: Tensor, clip_norm: float
) -> Callable[[], Tensor]:
    """One clipped gradient sum in a mode of Opacus, without noise or step."""
    wrapped: nn.Module
    settings = {
        "noise_multiplier": 0.0,
        "max_grad_norm": clip_norm,
        "expected_batch_size": len(x),
        "loss_reduction": "sum",
    }
    if mode == "ghost":
        wrapped = GradSampleModuleFastGradientClipping(
            module, max_grad_norm=clip_norm, use_ghost_clipping=True, loss_reduction="sum"
        )
        plain = torch.optim.SGD(wrapped.parameters())
        optimiser = DPOptimizerFastGradientClipping(plain, **settings)
        criterion = DPLossFastGradientClipping(wrapped, optimiser, criterion, loss_reduction="sum")
    else:
        kind = GradSampleModuleExpandedWeights if mode == "ew" else GradSampleModule
        extra = {"force_functorch": True} if mode == "functorch" else {}
        wrapped = kind(module, loss_reduction="sum", **extra)
        optimiser = DPOptimizer(torch.optim.SGD(wrapped.parameters()), **settings)
    parameters = list(wrapped.parameters())

    def run() -> Tensor:
        optimiser.zero_grad(set_to_none=True)
        criterion(wrapped(x), y).backward()
        if mode != "ghost":
            optimiser.clip_and_accumulate()
        kept = "grad" if mode == "ghost" else "summed_grad"
        return torch.cat([getattr(parameter, kept).flatten() for parameter in parameters])

    return run


def best_time(call: Callable[[], object], seconds: float) -> float:
    """The shortest run."""
    call()
    call()
    best, end = float("inf"), perf_counter() + seconds
    while perf_counter() < end:
        start = perf_counter()
        call()
        best = min(best, perf_counter() - start)
    return best


def main(folder: Path, threads: int, seconds: float) -> None:
    torch.set_num_threads(threads)
    found: dict[str, dict[str, float]] = {}
    for name in networks():
        data = np.load(folder / f"{name}.npz")
        x, y = torch.from_numpy(data["x"]), torch.from_numpy(data["y"])
        found[name] = {}
        for mode in MODES:
            module, criterion = networks()[name]
            nn.utils.vector_to_parameters(torch.from_numpy(data["theta"]), module.parameters())
            try:
                run = clipped_sum(module, criterion, mode, x, y, float(data["clip_norm"]))
                found[name][mode] = best_time(run, seconds)
            except RuntimeError as error:
                print(f"{name} in mode {mode}: {error}", file=sys.stderr)
                continue
            np.save(folder / f"{name}-{mode}.npy", run().detach().numpy())
    print(json.dumps(found))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
