"""Plans of gradient perturbation with batches that grow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Discriminator, Tag

from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.mechanisms import GaussianMechanism
from fedpriv.privacy.planning.plan import grid_sensitivity
from fedpriv.privacy.schedules.growing import GrowingBatch, GrowingPlan
from fedpriv.strategies.common.building import Count, Options, Positive, Rate
from fedpriv.strategies.common.plans.plans import gradient_grid, noise_free_gradients

if TYPE_CHECKING:
    from fedpriv.privacy.planning.noise_free import NoiseFree
    from fedpriv.strategies.common.building import Setup


class GrowingOptions(Options):
    """Sampling rates that grow.

    Attributes:
        first: The rate of the first round.
        factor: The factor by which it grows.
        every: The number of rounds between two such steps.
    """

    first: Rate
    factor: Positive
    every: Count


def _form(value: object) -> str:
    return "table" if isinstance(value, dict | Options) else "number"


SamplingOption = Annotated[
    Annotated[Rate, Tag("number")] | Annotated[GrowingOptions, Tag("table")], Discriminator(_form)
]
"""A rate, or a table that makes it grow."""


def plan_growing(
    setup: Setup, growth: GrowingOptions, *, rounds: int, clip_norm: float, accountant: str
) -> GrowingPlan | NoiseFree:
    """T noisy sums of the clipped gradients of Poisson samples, each round with its own rate.

    The noise on the sum is the same in all rounds; on the mean it falls as samples grow.
    """
    if setup.adjacency is not Adjacency.ADD_REMOVE or setup.sharing is not None:
        raise ValueError(
            "a growing sampling_rate needs adjacency = 'add-remove' and noise at the server: "
            "Poisson sampling is analysed for these."
        )
    task = setup.task
    if task.persons is not None and task.persons.parties > 1:
        raise ValueError(
            "a growing sampling_rate needs persons.parties = 1: samples of several parties are "
            "accounted for at one rate only."
        )
    batches = GrowingBatch(first=growth.first, factor=growth.factor, every=growth.every)
    if setup.noise_free:
        return noise_free_gradients(setup, rates=batches.rates(rounds), clip_norm=clip_norm)
    name = "rdp" if accountant == "auto" else accountant
    relative = batches.noise_multiplier(
        budget=setup.budget, rounds=rounds, accountant=name, unit=setup.unit
    )
    step, moved = gradient_grid(setup, clip_norm=clip_norm)
    sensitivity = grid_sensitivity(moved, dimension=task.dimension, step=step)
    mechanism = GaussianMechanism(
        sensitivity=sensitivity,
        stddev=relative * sensitivity,
        adjacency=setup.adjacency,
        unit=setup.unit,
    )
    return GrowingPlan(
        strategy="gradient-perturbation",
        query="the sum of the clipped gradients of a sample of its records at the current model",
        released="every round's noisy sum of gradients, hence every model of the run",
        budget=setup.budget,
        mechanisms=(mechanism,) * rounds,
        rates=batches.rates(rounds),
        parties=task.parties,
        records=task.records,
        smallest_party=task.smallest,
        dimension=task.dimension,
        step=step,
        clip_norm=clip_norm,
        accountant=name,
    )
