"""A round of federated averaging in Flower, on its simulation runtime with Ray.

Arguments: model, parties, records of each, epochs. Prints one JSON object: milliseconds of a round.
Flower's own FedAvg under its own wrapper for client-level privacy, which clips the updates and adds
the noise.
"""

from __future__ import annotations

import json
import logging
import sys
from statistics import median
from time import perf_counter

import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from flwr.simulation import run_simulation

from benchmarks.peers.flower_trainer import client_app
from benchmarks.peers.torch_models import CLIP_NORM, network

RELATIVE_NOISE = 1.0


def server_app(name: str, parties: int, rounds: int, times: list[float]) -> ServerApp:
    """Flower's loop; the clock is read where it evaluates, after every round."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        del context
        strategy = DifferentialPrivacyServerSideFixedClipping(
            FedAvg(
                fraction_train=1.0,
                fraction_evaluate=0.0,
                min_train_nodes=parties,
                min_available_nodes=parties,
            ),
            noise_multiplier=RELATIVE_NOISE,
            clipping_norm=CLIP_NORM,
            num_sampled_clients=parties,
        )
        strategy.start(
            grid,
            ArrayRecord(network(name).state_dict()),
            num_rounds=rounds,
            evaluate_fn=lambda *_: times.append(perf_counter()),
        )

    return app


def main(name: str, parties: int, size: int, epochs: int) -> None:
    """Time rounds; the first starts the workers."""
    logging.disable(logging.CRITICAL)
    times: list[float] = []
    rounds = 6 if parties <= 100 else 3
    run_simulation(
        server_app(name, parties, rounds, times),
        client_app(name, size, epochs),
        num_supernodes=parties,
        backend_config={"client_resources": {"num_cpus": 1}},
    )
    print(json.dumps({"round": 1e3 * median(np.diff(times)[1:].tolist())}))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
