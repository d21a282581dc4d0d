"""Training a protector: from a public data set and budgets to a file of weights with its card."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import torch

import fedpriv
from fedpriv._durable import replace_file
from fedpriv._validate import require_choice, require_count, require_open_unit, require_positive
from fedpriv.learning.protector import (
    Allowance,
    Card,
    Horizon,
    MetaTraining,
    NetworkTask,
    Recipe,
    final_models,
    to_bytes,
)
from fedpriv.learning.threads import one_thread
from fedpriv.privacy.adjacency import DEFAULT_ADJACENCY, Adjacency
from fedpriv.privacy.gaussian import gdp_mu
from fedpriv.simulations.public.auxiliary_tasks import MODELS, auxiliary_tasks
from fedpriv.simulations.run.files import read_json, write_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from fedpriv.learning.protector import AuxiliaryTask, EpochReport, Protector

    Pair = tuple[AuxiliaryTask, AuxiliaryTask]

EPSILONS = (0.0125, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8)
_FORMAT = "fedpriv protector training 1"
HORIZONS = (30, 60, 100, 400)
_RUNS, _LEAST_RUNS, _RECORDS, _JUDGED = 8, 2, 3000, 4  # by which horizons are judged


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """An order for a protector: what to train it for, and how long.

    Attributes:
        on: Built-in, public data sets with two classes.
        models: What is learned on each of them: every pair of data set and model is a task.
        hidden: Units of the hidden layer of "mlp".
        root: The folder of data archives, instead of FEDPRIV_DATA.
        epsilons: Budgets that it must know, from the smallest on.
        delta: Of all budgets.
        adjacency: Which data sets they compare.
        clip: C, for features of norm at most 1.
        horizons: T, for how many rounds a budget may be meant to last.
        minibatch: Records that a step of the training sees; None means all of its unroll.
        gated: Whether the projector starts as plain gradient descent.
        epochs: Of 50 batches of 20 steps.
        seed: Of everything random.
    """

    on: tuple[str, ...]
    models: tuple[str, ...] = ("logistic",)
    hidden: int = 20
    root: str | None = None
    epsilons: tuple[float, ...] = EPSILONS
    delta: float = 1e-8
    adjacency: Adjacency = DEFAULT_ADJACENCY
    clip: float = 0.1
    horizons: tuple[int, ...] = HORIZONS
    minibatch: int | None = None
    gated: bool = False
    epochs: int = 60
    seed: int = 0

    def __post_init__(self) -> None:
        require_positive(clip=self.clip)
        require_open_unit(delta=self.delta)
        require_count(epochs=self.epochs, hidden=self.hidden)
        for model in self.models:
            require_choice(MODELS, model=model)
        if not (self.on and self.models):
            raise ValueError("on and models must each name at least one, got none.")
        if not self.epsilons or list(self.epsilons) != sorted(set(self.epsilons)):
            raise ValueError(f"epsilons must ascend, got {self.epsilons}.")

    def recipe(self, records: int) -> Recipe:
        """The training, in units of noise: one record moves a mean by C/n or 2C/n."""
        moved = self.adjacency.sum_sensitivity / records
        noises = (moved / gdp_mu(epsilon=e, delta=self.delta) for e in self.epsilons)
        return Recipe(
            noises=tuple(noises),
            horizons=self.horizons,
            minibatch=self.minibatch,
            gated=self.gated,
            epochs=self.epochs,
            seed=self.seed,
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values, but for where the archives lie."""
        values = _listed(asdict(self))
        del values["root"]
        return values | {"adjacency": self.adjacency.value}


def train_protector(
    order: Order,
    out: Path,
    *,
    resume: bool = False,
    on_epoch: Callable[[EpochReport], None] = lambda _report: None,
    stop: Callable[[], bool] = lambda: False,
) -> Card | None:
    """Train a protector and write ``out``; None if ``stop`` ended it, and ``resume`` continues.

    Until the end, the state after every epoch lies beside ``out``. The same order gives the same
    bytes, interrupted or not.
    """
    partial = out.with_name(f"{out.name}.partial")
    if out.exists():
        raise ValueError(f"--out {str(out)!r} exists: choose another name, or remove it.")
    if partial.exists() != resume:
        hint = "continue it with --resume" if partial.exists() else "start it without --resume"
        raise ValueError(
            f"{str(partial)!r} {'exists' if partial.exists() else 'is missing'}: {hint}."
        )
    with one_thread():
        pairs = auxiliary_tasks(
            order.on, order.models, hidden=order.hidden, clip=order.clip, root=order.root
        )
        train = [pair[0] for pair in pairs]
        training = MetaTraining(order.recipe(_fewest(train)), *train)
        identity = {"format": _FORMAT, "order": order.to_dict(), "records": _digest(train)}
        if resume:
            _take_up(training, read_json(partial), identity, partial)
        while training.epoch < order.epochs:
            report = training.run_epoch()
            write_json(partial, {**identity, **training.state()})
            on_epoch(report)
            if stop() and training.epoch < order.epochs:
                return None
        card = _card(order, training, pairs)
        replace_file(out, to_bytes(training.protector, card))
        partial.unlink(missing_ok=True)
        return card


def choose_horizons(
    protector: Protector, recipe: Recipe, pairs: Sequence[Pair]
) -> tuple[Horizon, ...]:
    """For each budget the horizon with the best mean accuracy on the public test records."""
    regulariser = sorted(recipe.regularisers)[len(recipe.regularisers) // 2]
    pairs = pairs[:: -(-len(pairs) // _JUDGED)]  # spread over the data sets
    # Many tasks share the runs; a network's take long.
    network = any(isinstance(train, NetworkTask) for train, _ in pairs)
    runs = _LEAST_RUNS if network else max(_LEAST_RUNS, _RUNS // len(pairs))

    def accuracy(noise: float, horizon: int, train: AuxiliaryTask, test: AuxiliaryTask) -> float:
        allowance = Allowance(noise=noise, horizon=horizon, norm_share=recipe.norm_share)
        generator = torch.Generator().manual_seed(recipe.seed)
        sample = replace(train.sample(_RECORDS, generator), regulariser=regulariser)
        models = final_models(protector, sample, allowance, runs=runs, generator=generator)
        return float(test.accuracy(models).mean())

    def total(noise: float, horizon: int) -> float:
        return sum(accuracy(noise, horizon, train, test) for train, test in pairs)

    return tuple(
        Horizon(noise=noise, rounds=max(recipe.horizons, key=lambda T: total(noise, T)))
        for noise in recipe.noises
    )


def _card(order: Order, training: MetaTraining, pairs: Sequence[Pair]) -> Card:
    recipe = training.recipe
    return Card(
        trained_on=", ".join(order.on),
        version=fedpriv.__version__,
        clip_norm=order.clip,
        norm_share=recipe.norm_share,
        horizons=choose_horizons(training.protector, recipe, pairs),
        settings={
            "order": order.to_dict(),
            "recipe": _listed(asdict(recipe)),
            "records": _fewest(training.tasks),
            "records_sha256": _digest(training.tasks),
        },
    )


def _take_up(
    training: MetaTraining, saved: dict[str, Any], identity: dict[str, Any], path: Path
) -> None:
    if {key: saved.get(key) for key in identity} != identity:
        raise ValueError(
            f"{str(path)!r} is the state of another training, or on other records: remove it, or "
            "give the options that it was started with."
        )
    try:
        training.restore(saved)
    except (KeyError, TypeError, ValueError):
        raise ValueError(
            f"{str(path)!r} was changed or damaged: remove it to start anew."
        ) from None


def _listed(values: dict[str, Any]) -> dict[str, Any]:
    """With lists for tuples, as JSON has them."""
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in values.items()
    }


def _fewest(tasks: Sequence[AuxiliaryTask]) -> int:
    """Records of the smallest task: budgets are stated as the noise that they mean for it."""
    return min(len(task.labels) for task in tasks)


def _digest(tasks: Sequence[AuxiliaryTask]) -> str:
    digest = sha256()
    for task in tasks:
        digest.update(task.features.numpy().tobytes())
        digest.update(task.labels.numpy().tobytes())
    return digest.hexdigest()
