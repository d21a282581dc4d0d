"""A round of private federated learning in pfl-research, timed in its own environment.

Arguments: parties, records of each. Prints one JSON object: milliseconds of a round, in the faster
of two set-ups, NumPy and PyTorch, with every party's records made before the clock starts.
"""

from __future__ import annotations

import json
import subprocess
import sys
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend  # type: ignore[import-not-found]
from pfl.algorithm.base import FederatedAlgorithm  # type: ignore[import-not-found]
from pfl.common_types import Population  # type: ignore[import-not-found]
from pfl.context import CentralContext  # type: ignore[import-not-found]
from pfl.data.dataset import Dataset  # type: ignore[import-not-found]
from pfl.data.federated_dataset import FederatedDataset  # type: ignore[import-not-found]
from pfl.data.sampling import MinimizeReuseUserSampler  # type: ignore[import-not-found]
from pfl.internal.ops import (  # type: ignore[import-not-found]
    numpy_ops,
    pytorch_ops,
)
from pfl.internal.ops.selector import set_framework_module  # type: ignore[import-not-found]
from pfl.metrics import Metrics  # type: ignore[import-not-found]
from pfl.model.base import Model  # type: ignore[import-not-found]
from pfl.privacy.gaussian_mechanism import GaussianMechanism  # type: ignore[import-not-found]
from pfl.privacy.privacy_mechanism import (  # type: ignore[import-not-found]
    CentrallyAppliedPrivacyMechanism,
)
from pfl.stats import MappedVectorStatistics  # type: ignore[import-not-found]

WIDTH, CLIP_NORM, ROUNDS = 784, 0.3, 12
HUGE = 1e9  # a party's sum is bounded by its records: the mechanism's own clip must not bind


class Linear(Model):  # type: ignore[misc]
    """Parameters, and a step along a noisy sum."""

    def __init__(self, theta: Any, count: int) -> None:
        self.theta = theta
        self.count = count

    def apply_model_update(self, statistics: Any) -> tuple[Any, Any]:
        """One step."""
        self.theta = self.theta - statistics["gradient"] / self.count
        return self, Metrics()


class Gradients(FederatedAlgorithm):  # type: ignore[misc]
    """Every party answers with the sum of its clipped gradients."""

    def get_next_central_contexts(self, *_: Any, **__: Any) -> Any:
        """Rounds are driven from outside."""
        raise NotImplementedError

    def process_aggregated_statistics(
        self, central_context: Any, aggregate_metrics: Any, model: Any, statistics: Any
    ) -> Any:
        """The step."""
        del central_context, aggregate_metrics
        return model.apply_model_update(statistics)

    def simulate_one_user(self, model: Any, user_dataset: Any, central_context: Any) -> Any:
        """A slope times a record, its norm in closed form."""
        del central_context
        x, y = user_dataset.raw_data
        if isinstance(x, torch.Tensor):
            slopes = -y * torch.sigmoid(-y * (x @ model.theta))
            norms = slopes.abs() * torch.linalg.vector_norm(x, dim=1)
            total: Any = (slopes * (CLIP_NORM / norms).clamp(max=1.0)) @ x
        else:
            slopes = -y / (1 + np.exp(y * (x @ model.theta)))
            norms = np.abs(slopes) * np.sqrt(np.einsum("ij,ij->i", x, x))
            total = (slopes * np.minimum(1.0, CLIP_NORM / norms)) @ x
        return MappedVectorStatistics({"gradient": total}, weight=1.0), Metrics()


def median_round(parties: int, size: int, *, with_torch: bool) -> float:
    """Milliseconds of a round."""
    set_framework_module(pytorch_ops if with_torch else numpy_ops, None)
    make = torch.from_numpy if with_torch else np.asarray
    rng = np.random.default_rng(0)
    held = [
        Dataset(
            (
                make(rng.standard_normal((size, WIDTH), np.float32) / np.float32(28)),
                make(rng.choice(np.array([-1, 1], np.float32), size)),
            ),
            user_id=str(index),
        )
        for index in range(parties)
    ]
    data = FederatedDataset(lambda index: held[index], MinimizeReuseUserSampler(range(parties)))
    noise = CentrallyAppliedPrivacyMechanism(GaussianMechanism(HUGE, 1 / HUGE))
    backend = SimulatedBackend(training_data=data, val_data=data, postprocessors=[noise])
    algorithm, times = Gradients(), []
    model = Linear(make(np.zeros(WIDTH, np.float32)), parties * size)
    for index in range(ROUNDS):
        start = perf_counter()
        context = CentralContext(
            current_central_iteration=index,
            do_evaluation=False,
            cohort_size=parties,
            population=Population.TRAIN,
            algorithm_params=None,
            model_train_params=None,
            seed=index,
        )
        statistics, metrics = backend.gather_results(model, algorithm, central_context=context)
        algorithm.process_aggregated_statistics(context, metrics, model, statistics)
        times.append(perf_counter() - start)
    return 1e3 * median(times[2:])


def main(parties: int, size: int, framework: str = "") -> None:
    """The faster set-up; each in a process of its own, because pfl allows one framework in each."""
    if framework:
        with torch.no_grad():
            print(median_round(parties, size, with_torch=framework == "torch"))
        return
    command = [sys.executable, __file__, str(parties), str(size)]
    found = [
        float(subprocess.run([*command, name], check=True, capture_output=True, text=True).stdout)
        for name in ("numpy", "torch")
    ]
    print(json.dumps({"round": min(found)}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
