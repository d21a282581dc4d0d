"""A round of federated averaging in FedJAX, timed in its own environment.

Arguments: model, parties, records of each, epochs. Prints one JSON object: milliseconds of a round.
The kernel is compiled and every party's batches are on the device before the clock starts; but for
the network of convolutions, which is faster with batches that stay with NumPy, as FedJAX's own
loader leaves them.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import fedjax  # type: ignore[import-not-found]
import jax  # type: ignore[import-not-found]
import jax.numpy as jnp  # type: ignore[import-not-found]
import numpy as np
from jax import lax

WIDTH, BATCH, LEARNING_RATE, CLIP_NORM, RELATIVE_NOISE, ROUNDS = 784, 10, 0.1, 1.0, 1.0, 8
Parameters = list[tuple[Any, Any]]


def initial(name: str, key: Any) -> Parameters:
    """Weights and biases of every layer; the logistic model has no bias."""
    shapes: dict[str, list[tuple[int, ...]]] = {
        "logistic": [(WIDTH, 1)],
        "mlp-20": [(WIDTH, 20), (20, 10)],
        "mlp-128": [(WIDTH, 128), (128, 10)],
        "cnn": [(16, 1, 8, 8), (32, 16, 4, 4), (512, 32), (32, 10)],
    }
    layers = []
    for shape in shapes[name]:
        key, own = jax.random.split(key)
        fan_in = np.prod(shape[1:]) if len(shape) == 4 else shape[0]
        biases = shape[0] if len(shape) == 4 else shape[1]
        weights = jax.random.uniform(own, shape, minval=-1.0, maxval=1.0) / jnp.sqrt(fan_in)
        layers.append((weights, jnp.zeros(biases)))
    return layers


def convolved(x: Any, layer: tuple[Any, Any], *, stride: int, padding: int) -> Any:
    """A convolution, a ReLU and the maximum over windows of 2 × 2."""
    around = [(padding, padding)] * 2
    sums = lax.conv_general_dilated(x, layer[0], (stride, stride), around)
    positive = jax.nn.relu(sums + layer[1][:, None, None])
    return lax.reduce_window(positive, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 1, 1), "VALID")


def loss(name: str, layers: Parameters, batch: dict[str, Any]) -> Any:
    """The mean loss of a batch."""
    x = batch["x"]
    if name == "logistic":
        margins = batch["y"] * (x @ layers[0][0])[:, 0]
        return jnp.mean(jax.nn.softplus(-margins))
    if name == "cnn":
        x = convolved(x.reshape(-1, 1, 28, 28), layers[0], stride=2, padding=3)
        x = convolved(x, layers[1], stride=2, padding=0).reshape(len(x), -1)
        layers = layers[2:]
    for weights, bias in layers[:-1]:
        x = jax.nn.relu(x @ weights + bias)
    scores = jax.nn.log_softmax(x @ layers[-1][0] + layers[-1][1])
    return -jnp.mean(jnp.take_along_axis(scores, batch["y"][:, None], axis=1))


def client_step(name: str, state: Any, batch: Any) -> tuple[Any, tuple[()]]:
    """One step of SGD."""
    slopes = jax.grad(partial(loss, name))(state, batch)
    return jax.tree.map(lambda w, g: w - LEARNING_RATE * g, state, slopes), ()


def clipped_update(start: Any, end: Any) -> Any:
    """The update, scaled down to norm C."""
    update = jax.tree.map(lambda w, w0: w - w0, end, start)
    norm = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(update)))
    return jax.tree.map(lambda leaf: leaf * jnp.minimum(1.0, CLIP_NORM / norm), update)


def batches(name: str, index: int, size: int, epochs: int) -> list[dict[str, Any]]:
    """The batches of one party, epoch after epoch."""
    rng = np.random.default_rng(index)
    x = rng.standard_normal((size, WIDTH), np.float32) / np.float32(28)
    if name == "logistic":
        y = rng.choice(np.array([-1, 1], np.float32), size)
    else:
        y = rng.integers(0, 10, size)
    put = np.asarray if name == "cnn" else jnp.asarray
    made = [
        {"x": put(x[at : at + BATCH]), "y": put(y[at : at + BATCH])} for at in range(0, size, BATCH)
    ]
    return made * epochs


def main(name: str, parties: int, size: int, epochs: int) -> None:
    """Time rounds; the first two compile."""
    clients = [(str(i), batches(name, i, size, epochs), ()) for i in range(parties)]
    each = fedjax.for_each_client(
        lambda shared, _: shared,
        partial(client_step, name),
        clipped_update,
        with_step_result=True,
    )
    add = jax.jit(partial(jax.tree.map, jnp.add))
    key = jax.random.PRNGKey(0)
    model, times = initial(name, key), []
    for _ in range(ROUNDS):
        start = perf_counter()
        total = jax.tree.map(jnp.zeros_like, model)
        for _, update, _ in each(model, clients):
            total = add(total, update)
        leaves, shape = jax.tree.flatten(total)
        key, *keys = jax.random.split(key, len(leaves) + 1)
        noisy = [
            (leaf + RELATIVE_NOISE * CLIP_NORM * jax.random.normal(own, leaf.shape)) / parties
            for leaf, own in zip(leaves, keys, strict=True)
        ]
        model = jax.block_until_ready(
            jax.tree.map(jnp.add, model, jax.tree.unflatten(shape, noisy))
        )
        times.append(perf_counter() - start)
    print(json.dumps({"round": 1e3 * median(times[2:])}))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
