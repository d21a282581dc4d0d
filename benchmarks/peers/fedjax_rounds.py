"""A round of private federated learning in FedJAX, timed in its own environment.

Arguments: parties, records of each. Prints one JSON object: milliseconds of a round. The kernel is
compiled, and every party's records are on the device before the clock starts.
"""

from __future__ import annotations

import json
import sys
from statistics import median
from time import perf_counter

import fedjax  # type: ignore[import-not-found]
import jax  # type: ignore[import-not-found]
import jax.numpy as jnp  # type: ignore[import-not-found]
import numpy as np

WIDTH, CLIP_NORM, STDDEV, ROUNDS = 784, 0.3, 1.0, 12


def client_init(theta: jax.Array, _: object) -> dict[str, jax.Array]:
    """Nothing summed yet."""
    return {"theta": theta, "sum": jnp.zeros(WIDTH)}


def client_step(
    state: dict[str, jax.Array], batch: dict[str, jax.Array]
) -> tuple[dict[str, jax.Array], tuple[()]]:
    """Add the clipped gradients of a batch: a slope times a record, its norm in closed form."""
    x, y = batch["x"], batch["y"]
    slopes = -y * jax.nn.sigmoid(-y * (x @ state["theta"]))
    norms = jnp.abs(slopes) * jnp.linalg.norm(x, axis=1)
    weights = slopes * jnp.minimum(1.0, CLIP_NORM / jnp.maximum(norms, 1e-12))
    return {"theta": state["theta"], "sum": state["sum"] + weights @ x}, ()


def client_final(_: jax.Array, state: dict[str, jax.Array]) -> jax.Array:
    """The sum."""
    return state["sum"]


def main(parties: int, size: int) -> None:
    """Time rounds; the first compiles."""
    rng = np.random.default_rng(0)
    clients = [
        (
            str(index),
            [
                {
                    "x": jnp.asarray(rng.standard_normal((size, WIDTH), np.float32) / 28),
                    "y": jnp.asarray(rng.choice(np.array([-1, 1], np.float32), size)),
                }
            ],
            (),
        )
        for index in range(parties)
    ]
    each = fedjax.for_each_client(client_init, client_step, client_final, with_step_result=True)
    theta, key, times = jnp.zeros(WIDTH), jax.random.PRNGKey(0), []
    for _ in range(ROUNDS):
        start = perf_counter()
        total = jnp.zeros(WIDTH)
        for _, answer, _ in each(theta, clients):
            total = total + answer
        key, own = jax.random.split(key)
        noisy = total + STDDEV * jax.random.normal(own, (WIDTH,))
        theta = (theta - noisy / (parties * size)).block_until_ready()
        times.append(perf_counter() - start)
    print(json.dumps({"round": 1e3 * median(times[2:])}))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
