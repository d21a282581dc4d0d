"""A round of private federated learning in Flower, on its simulation runtime with Ray.

Arguments: parties, records of each. Prints one JSON object: milliseconds of a round. Flower's own
FedAvg averages what the clients answer; noise is added to the average.
"""

from __future__ import annotations

import json
import logging
import sys
from statistics import median
from time import perf_counter

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.peers.flower_client import WIDTH, client_app

STDDEV = 1.0


def server_app(parties: int, size: int, rounds: int, times: list[float]) -> ServerApp:
    """Flower's loop; the clock is read where it evaluates, after every round."""
    app = ServerApp()
    rng = np.random.default_rng(0)
    theta = np.zeros(WIDTH, np.float32)

    class Noisy(FedAvg):
        def aggregate_train(self, server_round, replies):  # type: ignore[no-untyped-def]
            average, metrics = super().aggregate_train(server_round, replies)
            if average is None:
                raise RuntimeError("no client answered.")
            noisy = average["theta"].numpy() + rng.normal(0, STDDEV / parties, WIDTH)
            theta[:] -= noisy / size
            return ArrayRecord({"theta": Array(theta)}), metrics

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        del context
        strategy = Noisy(
            fraction_train=1.0,
            fraction_evaluate=0.0,
            min_train_nodes=parties,
            min_available_nodes=parties,
        )
        strategy.start(
            grid,
            ArrayRecord({"theta": Array(theta)}),
            num_rounds=rounds,
            evaluate_fn=lambda *_: times.append(perf_counter()),
        )

    return app


def main(parties: int, size: int) -> None:
    """Time rounds; the first starts the workers."""
    logging.disable(logging.CRITICAL)
    times: list[float] = []
    rounds = 12 if parties <= 100 else 5
    run_simulation(
        server_app(parties, size, rounds, times),
        client_app(size),
        num_supernodes=parties,
        backend_config={"client_resources": {"num_cpus": 1}},
    )
    print(json.dumps({"round": 1e3 * median(np.diff(times)[1:].tolist())}))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
