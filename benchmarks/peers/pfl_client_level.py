"""Federated averaging with central privacy in pfl-research: the accuracy of its own algorithm.

Arguments: file of records, JSON of settings. Prints one JSON object: accuracy, and the noise
multiplier, which comes from pfl's own accountant of privacy-loss distributions.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend  # type: ignore[import-not-found]
from pfl.algorithm.base import NNAlgorithmParams  # type: ignore[import-not-found]
from pfl.algorithm.federated_averaging import FederatedAveraging  # type: ignore[import-not-found]
from pfl.common_types import Population  # type: ignore[import-not-found]
from pfl.context import CentralContext  # type: ignore[import-not-found]
from pfl.data.dataset import Dataset  # type: ignore[import-not-found]
from pfl.data.federated_dataset import FederatedDataset  # type: ignore[import-not-found]
from pfl.data.sampling import MinimizeReuseUserSampler  # type: ignore[import-not-found]
from pfl.hyperparam.base import NNTrainHyperParams  # type: ignore[import-not-found]
from pfl.model.pytorch import PyTorchModel  # type: ignore[import-not-found]
from pfl.privacy.adaptive_clipping import (  # type: ignore[import-not-found]
    AdaptiveClippingGaussianMechanism,
)
from pfl.privacy.gaussian_mechanism import GaussianMechanism  # type: ignore[import-not-found]
from pfl.privacy.privacy_accountant import PLDPrivacyAccountant  # type: ignore[import-not-found]
from pfl.privacy.privacy_mechanism import (  # type: ignore[import-not-found]
    CentrallyAppliedPrivacyMechanism,
)
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

COUNT_NOISE = 1 / 20  # of the parties, on the count of updates that were not clipped


class Linear(nn.Module):
    """A linear classifier with the two methods that pfl asks for."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.inner = nn.Linear(width, classes, bias=False)
        nn.init.zeros_(self.inner.weight)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Of a batch."""
        return cross_entropy(self.inner(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, float]:
        """None: the last model is scored by itself."""
        del x, y
        return {}


def mechanism(settings: dict[str, Any]) -> tuple[Any, float]:
    """Central noise with clipping that is fixed or adapts, and its noise multiplier."""
    accountant = PLDPrivacyAccountant(
        num_compositions=settings["rounds"],
        sampling_probability=1.0,
        mechanism="gaussian",
        epsilon=settings["epsilon"],
        delta=settings["delta"],
    )
    noise = float(accountant.noise_parameter)
    if not settings["adaptive"]:
        fixed = GaussianMechanism.from_privacy_accountant(accountant, settings["clip"])
        return CentrallyAppliedPrivacyMechanism(fixed), noise
    adapting = AdaptiveClippingGaussianMechanism.construct_from_privacy_accountant(
        accountant,
        initial_clipping_bound=settings["clip"],
        clipping_indicator_noise_stddev=COUNT_NOISE * settings["parties"],
        adaptive_clipping_norm_quantile=0.5,
    )
    return adapting, noise


def main(path: str, settings: dict[str, Any]) -> None:
    """Train, and score the last model."""
    torch.set_num_threads(1)  # faster than two on steps as small as these
    torch.manual_seed(settings["seed"])
    np.random.seed(settings["seed"])  # noqa: NPY002 (pfl draws there)
    records = np.load(path)
    x, y, test_x, test_y = (
        torch.from_numpy(records[name]) for name in ("x", "y", "test_x", "test_y")
    )
    parties, size = settings["parties"], len(x) // settings["parties"]
    held = [
        Dataset((x[j * size : (j + 1) * size], y[j * size : (j + 1) * size]), user_id=str(j))
        for j in range(parties)
    ]
    data = FederatedDataset(lambda index: held[index], MinimizeReuseUserSampler(range(parties)))
    module = Linear(x.shape[1], int(y.max()) + 1)
    model = PyTorchModel(
        module,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(module.parameters(), 1.0),
    )
    noise, multiplier = mechanism(settings)
    backend = SimulatedBackend(training_data=data, val_data=data, postprocessors=[noise])
    training = NNTrainHyperParams(
        local_num_epochs=1,
        local_learning_rate=settings["local_learning_rate"],
        local_batch_size=settings["batch_size"],
    )
    limits = NNAlgorithmParams(
        central_num_iterations=settings["rounds"],
        evaluation_frequency=settings["rounds"] + 1,
        train_cohort_size=parties,
        val_cohort_size=0,
    )
    algorithm = FederatedAveraging()
    for index in range(settings["rounds"]):
        central = CentralContext(
            current_central_iteration=index,
            do_evaluation=False,
            cohort_size=parties,
            population=Population.TRAIN,
            algorithm_params=limits,
            model_train_params=training,
            seed=settings["seed"] * 1000 + index,
        )
        statistics, metrics = backend.gather_results(model, algorithm, central_context=central)
        algorithm.process_aggregated_statistics(central, metrics, model, statistics)
    right = (module.inner(test_x).argmax(1) == test_y).float().mean()
    print(json.dumps({"accuracy": float(right), "noise multiplier": multiplier}))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
