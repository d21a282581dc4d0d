"""Claims that were made in public, or are easily made, in the shape in which they were made.

Papers, tutorials and manuals, described by what is claimed; each with what is true of it. Numbers
of full-batch Gaussians were computed with mpmath from δ(ε, μ) at 40 digits, those of Poisson
samples are reference values of dp-accounting.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Case(NamedTuple):
    """A claim with the outcome, the ε that is proved (None: none), and words of the reason."""

    about: str
    claim: dict[str, Any]
    outcome: str
    epsilon: float | None
    reason: str


CORPUS = (
    Case(
        "noise for gradient descent among 100 parties of 500, without the factor √(4·ln(1/δ))",
        {
            "kind": "gaussian", "noise_stddev": 0.000566, "clip": 4e-5, "rounds": 100,
            "adjacency": "add-remove", "delta": 1e-3, "epsilon": 0.5,
        },
        "false", 2.05164, "100 releases of a sum",
    ),
    Case(
        "Laplace noise on each coordinate, scaled to a sensitivity in L2 (d = 10)",
        {
            "kind": "laplace", "scale": 1.0, "sensitivity": 1.0, "norm": "l2", "dimension": 10,
            "adjacency": "replace-one", "delta": 0.0, "epsilon": 1.0,
        },
        "false", 10**0.5, "may move by √10 times that in L1",
    ),
    Case(
        "the same at δ > 0: the worst pair alone shows more",
        {
            "kind": "laplace", "scale": 1.0, "sensitivity": 1.0, "norm": "l2", "dimension": 50,
            "adjacency": "replace-one", "delta": 1e-6, "epsilon": 1.0,
        },
        "false", 50**0.5, "L1",
    ),
    Case(
        "the ε of one round, stated for all of them",
        {
            "kind": "gaussian", "noise_multiplier": 4.2246788893, "rounds": 100,
            "adjacency": "add-remove", "delta": 1e-6, "epsilon": 1.0,
        },
        "false", 13.507003, "compose exactly",
    ),
    Case(
        "the classical Gaussian formula at ε = 10, by a modifier for local noise",
        {
            "kind": "flower-local-dp", "clipping_norm": 1.0, "sensitivity": 1.0,
            "mod_epsilon": 10.0, "mod_delta": 1e-5, "adjacency": "zero-out", "delta": 1e-5,
            "epsilon": 10.0,
        },
        "false", 10.393882, "proved for ε ≤ 1 alone",
    ),
    Case(
        "DP-SGD on shuffled batches, with the ε of Poisson samples",
        {
            "kind": "opacus", "noise_multiplier": 1.0, "sample_rate": 0.01, "steps": 1000,
            "poisson_sampling": False, "adjacency": "add-remove", "delta": 1e-5, "epsilon": 1.83,
        },
        "not proved", 17.856586830, "Poisson samples only",
    ),
    Case(
        "DP-SGD on Poisson samples, by an accountant that bounds",
        {
            "kind": "opacus", "noise_multiplier": 1.0, "sample_rate": 0.01, "steps": 1000,
            "adjacency": "add-remove", "delta": 1e-5, "epsilon": 1.83,
        },
        "sound", 1.8282, "a coin of its own",
    ),
    Case(
        "the same by a limit theorem, which prints less than is spent",
        {
            "kind": "opacus", "noise_multiplier": 0.8, "sample_rate": 0.001, "steps": 5000,
            "accountant": "gdp", "adjacency": "add-remove", "delta": 1e-6, "epsilon": 0.557,
        },
        "false", 0.7336, "limit theorem",
    ),
    Case(
        "an ε of add-remove, stated for records that are exchanged",
        {
            "kind": "gaussian", "noise_multiplier": 1.0, "rounds": 1000, "sampling": "poisson",
            "sampling_rate": 0.01, "adjacency": "replace-one", "delta": 1e-5, "epsilon": 1.83,
        },
        "not proved", 4.2555, "two steps of add-remove",
    ),
    Case(
        "client-level noise with fixed clipping, all clients equal, zero-out",
        {
            "kind": "flower-fixed-clipping", "noise_multiplier": 1.0, "sampled_clients": 20,
            "rounds": 10, "adjacency": "zero-out", "delta": 1e-5, "epsilon": 17.9,
        },
        "sound", 17.8566, "move the average by 1·C/20",
    ),
    Case(
        "the same, stated for clients that come and go: an average over those who reply",
        {
            "kind": "flower-fixed-clipping", "noise_multiplier": 1.0, "sampled_clients": 20,
            "rounds": 10, "adjacency": "add-remove", "delta": 1e-5, "epsilon": 17.9,
        },
        "false", 46.21121, "filled by others",
    ),
    Case(
        "the same with replies weighted by examples, one of which has a fifth of all",
        {
            "kind": "flower-fixed-clipping", "noise_multiplier": 1.0, "sampled_clients": 20,
            "rounds": 10, "largest_weight": 0.2, "adjacency": "zero-out", "delta": 1e-5,
            "epsilon": 17.9,
        },
        "false", 133.08628, "weighted by examples",
    ),
    Case(
        "cohorts of fixed size from a thousand clients, with the ε of Poisson samples",
        {
            "kind": "flower-fixed-clipping", "noise_multiplier": 1.0, "sampled_clients": 10,
            "clients": 1000, "rounds": 1000, "adjacency": "zero-out", "delta": 1e-5,
            "epsilon": 1.83,
        },
        "not proved", 23.40, "fixed size",
    ),
    Case(
        "client-level noise with adaptive clipping, at the ε of its noise multiplier",
        {
            "kind": "flower-adaptive-clipping", "noise_multiplier": 1.0, "sampled_clients": 20,
            "rounds": 10, "adjacency": "zero-out", "delta": 1e-5, "epsilon": 17.9,
        },
        "not proved", 28.639501, "clip norm of the next round",
    ),
    Case(
        "local noise for a sensitivity of C, where two updates are 2C apart, in ten rounds",
        {
            "kind": "flower-local-dp", "clipping_norm": 1.0, "sensitivity": 1.0,
            "mod_epsilon": 1.0, "mod_delta": 1e-5, "rounds": 10, "adjacency": "replace-one",
            "delta": 1e-5, "epsilon": 1.0,
        },
        "false", 5.977829, "the noise of one round, and there are 10",
    ),
    Case(
        "a simulation whose noise is scaled down to stand for a larger cohort",
        {
            "kind": "pfl", "noise_parameter": 1.0, "noise_scale": 0.05, "population": 100000,
            "cohort_size": 50, "rounds": 1500, "adjacency": "add-remove", "delta": 1e-6,
            "epsilon": 2.0,
        },
        "not proved", 6461.1, "of a larger cohort, which was not run",
    ),
    Case(
        "users who take turns, with the ε of Poisson samples",
        {
            "kind": "pfl", "noise_parameter": 1.0, "population": 1000, "cohort_size": 50,
            "rounds": 1500, "sampler": "minimize_reuse", "adjacency": "add-remove",
            "delta": 1e-6, "epsilon": 2.0,
        },
        "not proved", None, "take turns",
    ),
    Case(
        "the largest changes of a model, cut off, called privacy-preserving",
        {
            "kind": "nvflare-percentile", "adjacency": "replace-one", "delta": 1e-6,
            "epsilon": 1.0,
        },
        "not DP", None, "no random numbers",
    ),
    Case(
        "a sparse vector filter at epsilon = 0.1, its default, on a model of a million numbers",
        {
            "kind": "nvflare-svt", "parameters": 1_000_000, "adjacency": "replace-one",
            "delta": 0.0, "epsilon": 0.1,
        },
        "false", 10001.0, "what is sent of them costs 10000 more",
    ),
    Case(
        "the same, of a model with a parameter that is a single number",
        {
            "kind": "nvflare-svt", "parameters": 1000, "scalars": True,
            "adjacency": "replace-one", "delta": 0.0, "epsilon": 0.1,
        },
        "not DP", None, "as they are, without noise",
    ),
    Case(
        "minima and maxima with bounded noise",
        {
            "kind": "nvflare-statistics", "cleanser": "min-max", "adjacency": "replace-one",
            "delta": 0.0, "epsilon": 1.0,
        },
        "not DP", None, "bounded range",
    ),
)  # fmt: skip
