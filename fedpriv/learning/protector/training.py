"""Meta-training: a protector learns on public problems how to spend a budget.

    for every epoch, for every unroll of it:
        draw a task, a budget, a horizon T, a regulariser and a sample of the public records
        for every batch of at most 20 steps of the T:
            unroll; the batch may spend its share of what is left
            5 times out of 6: move the projector along its derivative of the expected loss
            else:             move the scheduler along that of the augmented Lagrangian
            λ ← max(0, λ + κ·excess)                                        (every batch)

Hong, Wang, Wang and Zhou 2021, with batches in place of whole unrolls: the budget of a batch is a
constraint of its own, so that derivatives never reach beyond it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fedpriv._validate import (
    require_count,
    require_non_negative,
    require_open_unit,
    require_positive,
)
from fedpriv.learning.protector.lagrangian import AugmentedLagrangian, expected_loss
from fedpriv.learning.protector.protector import Protector
from fedpriv.learning.protector.tensors import from_text, to_text
from fedpriv.learning.protector.unroll import Allowance, beginning, unroll

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from fedpriv.learning.protector.auxiliary import AuxiliaryTask
    from fedpriv.learning.protector.unroll import Position

_LONGEST = 1.0  # of a meta-gradient: a run that diverged must not throw the others out
_LAST_RATE = 0.1  # of the first
_MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The training recipe of a protector; with the public records it decides every weight.

    Attributes:
        noises: Budgets, as the noise of a release that takes all of one; from the hardest on.
        horizons: T, drawn for every unroll.
        regularisers: λ, drawn for every unroll.
        norm_share: Share of a round that pays for the norm.
        epochs: Of ``batches`` batches each.
        batches: In an epoch.
        steps: In a batch.
        runs: Unrolled at once, with noise of their own.
        records: Drawn for every unroll.
        minibatch: Of those, drawn for every step; None means all.
        projector_rate: Learning rate, which falls to a tenth.
        scheduler_rate: Likewise.
        ratio: Updates of the projector for one of the scheduler.
        penalty: κ of the Lagrangian.
        gated: Whether the projector has a factor on the gradient, and starts as plain descent.
        seed: Of everything random.
    """

    noises: tuple[float, ...]
    horizons: tuple[int, ...] = (30, 60, 100, 400)
    regularisers: tuple[float, ...] = (1e-5, 1e-4, 1e-3)
    norm_share: float = 0.05
    epochs: int = 60
    batches: int = 50
    steps: int = 20
    runs: int = 2
    records: int = 1000
    minibatch: int | None = None
    projector_rate: float = 3e-3
    scheduler_rate: float = 3e-3
    ratio: int = 5
    penalty: float = 1.0
    gated: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if not (self.noises and self.horizons and self.regularisers):
            raise ValueError(
                "noises, horizons and regularisers must each hold at least one number, got none."
            )
        require_positive(**{f"noises[{i}]": value for i, value in enumerate(self.noises)})
        require_count(**{f"horizons[{i}]": value for i, value in enumerate(self.horizons)})
        require_non_negative(
            seed=self.seed,
            **{f"regularisers[{i}]": value for i, value in enumerate(self.regularisers)},
        )
        require_open_unit(norm_share=self.norm_share)
        require_positive(
            projector_rate=self.projector_rate,
            scheduler_rate=self.scheduler_rate,
            penalty=self.penalty,
        )
        require_count(
            epochs=self.epochs,
            batches=self.batches,
            steps=self.steps,
            runs=self.runs,
            records=self.records,
            minibatch=1 if self.minibatch is None else self.minibatch,
            ratio=self.ratio,
        )
        if min(map(self.batches_of, self.horizons)) > self.batches:
            raise ValueError(
                f"batches must be enough for the shortest horizon, "
                f"{min(map(self.batches_of, self.horizons))}, got {self.batches}."
            )

    def batches_of(self, horizon: int) -> int:
        """How many batches an unroll of ``horizon`` steps has."""
        return -(-horizon // self.steps)

    def budgets(self, epoch: int) -> tuple[tuple[float, ...], float]:
        """The budgets of an epoch, and how often the newest of them is drawn on purpose.

        In the first half of the training, budgets join one by one, smallest first, each starting
        from what was learned for those before it; then all are drawn with equal probability.
        """
        half = max(1, self.epochs // 2)
        if epoch >= half:
            return self.noises, 0.0
        known = 1 + epoch * len(self.noises) // half
        return self.noises[:known], 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochReport:
    """Report on an epoch: mean logarithm of the loss, mean cost of a round, λ at its end."""

    epoch: int
    log_loss: float
    cost: float
    multiplier: float


class MetaTraining:
    """Meta-training of a protector on public ``tasks``; it can stop and go on after every epoch.

    Deterministic: weights after every epoch follow from recipe and records, on one thread of one
    kind of machine to the last bit, whether or not the training was interrupted.
    """

    def __init__(self, recipe: Recipe, *tasks: AuxiliaryTask) -> None:
        if not tasks:
            raise ValueError("tasks must hold at least one public problem, got none.")
        self.recipe = recipe
        self.tasks = tasks
        self.epoch = 0
        generator = torch.Generator().manual_seed(_seed(recipe.seed, 0))
        self.protector = Protector(gated=recipe.gated).seeded(generator)
        self._lagrangian = AugmentedLagrangian(penalty=recipe.penalty)
        self._updates = 0
        self._adam = {
            "projector": torch.optim.Adam(self.protector.projector.parameters()),
            "scheduler": torch.optim.Adam(self.protector.scheduler.parameters()),
        }

    def run_epoch(self) -> EpochReport:
        """One epoch more."""
        recipe = self.recipe
        generator = torch.Generator().manual_seed(_seed(recipe.seed, 1, self.epoch))
        fallen = _LAST_RATE ** (self.epoch / max(1, recipe.epochs - 1))
        self._set_rate("projector", recipe.projector_rate * fallen)
        self._set_rate("scheduler", recipe.scheduler_rate * fallen)
        losses, costs = [], []
        for allowance, task in self._unrolls():
            position = beginning(self.protector, task, runs=recipe.runs, generator=generator)
            while position.step < allowance.horizon:
                position, loss, cost = self._batch(allowance, task, position, generator)
                losses.append(loss)
                costs.append(cost)
        self.epoch += 1
        return EpochReport(
            epoch=self.epoch,
            log_loss=float(np.mean(losses)),
            cost=float(np.mean(costs)),
            multiplier=self._lagrangian.multiplier,
        )

    def _unrolls(self) -> Iterator[tuple[Allowance, AuxiliaryTask]]:
        """Budgets, horizons and samples of records for one epoch: whole unrolls, that fit it."""
        recipe = self.recipe
        rng = np.random.default_rng(_seed(recipe.seed, 2, self.epoch))
        noises, on_purpose = recipe.budgets(self.epoch)
        left = recipe.batches
        while fitting := [T for T in recipe.horizons if recipe.batches_of(T) <= left]:
            horizon = fitting[rng.integers(len(fitting))]
            left -= recipe.batches_of(horizon)
            newest = rng.random() < on_purpose
            noise = noises[-1] if newest else noises[rng.integers(len(noises))]
            allowance = Allowance(noise=noise, horizon=horizon, norm_share=recipe.norm_share)
            regulariser = recipe.regularisers[rng.integers(len(recipe.regularisers))]
            draw = torch.Generator().manual_seed(int(rng.integers(2**62)))
            # One task is not drawn, so that more of them change nothing for trainings on one.
            which = rng.integers(len(self.tasks)) if len(self.tasks) > 1 else 0
            sample = self.tasks[which].sample(recipe.records, draw)
            yield allowance, replace(sample, regulariser=regulariser)

    def _batch(
        self,
        allowance: Allowance,
        task: AuxiliaryTask,
        position: Position,
        generator: torch.Generator,
    ) -> tuple[Position, float, float]:
        steps = min(self.recipe.steps, allowance.horizon - position.step)
        # The rest, shared evenly among the remaining steps; never less than half of the initial
        # share, so that one batch cannot leave the next without anything.
        left = (allowance.horizon - position.spent) / (allowance.horizon - position.step)
        budget = left.clamp(min=0.5) * steps
        after, trace = unroll(
            self.protector,
            task,
            allowance,
            position,
            steps=steps,
            generator=generator,
            minibatch=self.recipe.minibatch,
        )
        spent = trace.cost.cumsum(0)
        objective = expected_loss(trace.loss, spent, budget)
        excess = (spent[-1] / budget).mean() - 1
        turn = "scheduler" if self._updates % (self.recipe.ratio + 1) == 0 else "projector"
        if turn == "scheduler":
            objective = objective + self._lagrangian.term(excess)
        self._step(turn, objective)
        self._lagrangian = self._lagrangian.after(excess.item())
        return after.detached(), trace.loss[-1].mean().item(), trace.cost.mean().item()

    def _step(self, turn: str, objective: Tensor) -> None:
        self._updates += 1
        network = getattr(self.protector, turn)
        parameters = list(network.parameters())
        gradients = torch.autograd.grad(objective, parameters)
        length = torch.stack([gradient.norm() for gradient in gradients]).norm()
        if not bool(length.isfinite()):
            return
        shrink = (_LONGEST / (length + 1e-12)).clamp(max=1.0)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient * shrink
        self._adam[turn].step()

    def state(self) -> dict[str, Any]:
        """All that `restore` needs to go on after this epoch, JSON-ready."""
        return {
            "epoch": self.epoch,
            "updates": self._updates,
            "multiplier": self._lagrangian.multiplier,
            "adam_steps": {name: _steps(adam) for name, adam in self._adam.items()},
            "tensors": to_text(self._tensors()),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state of the same recipe and records."""
        self.epoch, self._updates = int(state["epoch"]), int(state["updates"])
        self._lagrangian = replace(self._lagrangian, multiplier=float(state["multiplier"]))
        for name, adam in self._adam.items():
            _prime(adam, int(state["adam_steps"][name]))
        own = self._tensors()
        saved = from_text(state["tensors"], {name: tuple(t.shape) for name, t in own.items()})
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(saved[name])

    def _tensors(self) -> dict[str, Tensor]:
        """Every tensor that an epoch changes, by name: weights, and what Adam keeps of each."""
        tensors: dict[str, Tensor] = {}
        for turn, adam in self._adam.items():
            for name, parameter in getattr(self.protector, turn).named_parameters():
                tensors[f"{turn}.{name}"] = parameter
                for moment in _MOMENTS:
                    if moment in adam.state[parameter]:
                        tensors[f"{turn}.{name}.{moment}"] = adam.state[parameter][moment]
        return tensors

    def _set_rate(self, which: str, rate: float) -> None:
        for group in self._adam[which].param_groups:
            group["lr"] = rate


def _steps(adam: torch.optim.Adam) -> int:
    return max((int(state["step"]) for state in adam.state.values() if state), default=0)


def _prime(adam: torch.optim.Adam, steps: int) -> None:
    """Give Adam the state of one that has made ``steps`` steps, its moments still zero."""
    for group in adam.param_groups:
        for parameter in group["params"] if steps else ():
            adam.state[parameter] = {
                "step": torch.tensor(float(steps)),
                **{moment: torch.zeros_like(parameter) for moment in _MOMENTS},
            }


def _seed(*path: int) -> int:
    return int(np.random.SeedSequence(path).generate_state(1, np.uint64)[0] >> 1)
