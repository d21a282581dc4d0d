"""A round of federated averaging in pfl-research, timed in its own environment.

Arguments: model, parties, records of each, epochs. Prints one JSON object: milliseconds of a round.
pfl's own algorithm, local training and central Gaussian mechanism; every party's records are made
before the clock starts.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

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
from pfl.privacy.gaussian_mechanism import GaussianMechanism  # type: ignore[import-not-found]
from pfl.privacy.privacy_mechanism import (  # type: ignore[import-not-found]
    CentrallyAppliedPrivacyMechanism,
)
from torch import Tensor, nn

from benchmarks.peers.torch_models import (
    BATCH,
    CLIP_NORM,
    LEARNING_RATE,
    loss,
    network,
    records,
)

ROUNDS, RELATIVE_NOISE = 8, 1.0


class Network(nn.Module):
    """A network with the two methods that pfl asks for."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.inner = network(name)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Of a batch."""
        return loss(self.inner(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, float]:
        """None: nothing is evaluated while the clock runs."""
        del x, y
        return {}


def main(name: str, parties: int, size: int, epochs: int) -> None:
    """Time rounds; the first two warm up."""
    held = [Dataset(records(index, size, name), user_id=str(index)) for index in range(parties)]
    data = FederatedDataset(lambda index: held[index], MinimizeReuseUserSampler(range(parties)))
    module = Network(name)
    model = PyTorchModel(
        module,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(module.parameters(), 1.0),
    )
    noise = CentrallyAppliedPrivacyMechanism(GaussianMechanism(CLIP_NORM, RELATIVE_NOISE))
    backend = SimulatedBackend(training_data=data, val_data=data, postprocessors=[noise])
    training = NNTrainHyperParams(
        local_num_epochs=epochs, local_learning_rate=LEARNING_RATE, local_batch_size=BATCH
    )
    settings = NNAlgorithmParams(
        central_num_iterations=ROUNDS,
        evaluation_frequency=ROUNDS + 1,
        train_cohort_size=parties,
        val_cohort_size=0,
    )
    algorithm, times = FederatedAveraging(), []
    context: Any = partial(
        CentralContext,
        do_evaluation=False,
        cohort_size=parties,
        population=Population.TRAIN,
        algorithm_params=settings,
        model_train_params=training,
    )
    for index in range(ROUNDS):
        start = perf_counter()
        central = context(current_central_iteration=index, seed=index)
        statistics, metrics = backend.gather_results(model, algorithm, central_context=central)
        algorithm.process_aggregated_statistics(central, metrics, model, statistics)
        times.append(perf_counter() - start)
    print(json.dumps({"round": 1e3 * median(times[2:])}))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
