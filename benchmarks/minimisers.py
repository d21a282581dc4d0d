"""λ of noisy minimisers that needs no tuning: the rule against λ = 0.001 and the best of a grid.

Run with ``python -m benchmarks.minimisers [--quick] [--json] [TABLE …]``, tables in
``FEDPRIV_DATA``. Linear classifiers by output perturbation (the average of ten parties' minimisers)
and by objective perturbation, replace-one, δ = 1e-6. The rules' numbers were chosen on the tables
for `settings.FITTING`, and are judged here on those for `settings.JUDGING`, cut to 500, 2,000 and
all records. *Fixed* is λ = 0.001, which was the default; the *grid* is the best of 11 λ from 1e-5
to 1, two to a power of ten, by accuracy on the test records, which no real run can know. Goals as
in `settings`.

Minimisers are exact to 1e-7 and noise is Gaussian in floating point, as large as the plan of the
strategy says; all λ and ε of a seed share its records and the direction of its noise.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks.descents import judged
from benchmarks.settings import (
    EPSILONS,
    FIXED_L2,
    JUDGING,
    RECORDS,
    SEEDS,
    SEEDS_OF_SMALL,
    SMALL,
    TWO_CLASSES,
    cut,
    line,
    means,
    misses,
    summary,
    task_of,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from fedpriv.data import Dataset
    from fedpriv.learning.erm.problem import ErmProblem
    from fedpriv.learning.losses import Loss

OUTPUT, OBJECTIVE = STRATEGIES = ("output-perturbation", "objective-perturbation")
GRID = tuple(10.0 ** (-5 + k / 2) for k in range(11))
_TARGET = 1e-7  # of a gradient: nothing beside any noise here


@dataclass(frozen=True, slots=True, kw_only=True)
class Noisy:
    """A noisy minimiser, as its strategy plans it.

    Attributes:
        parties: Whose minimisers are averaged; 1 for a joint one.
        l2: λ.
        extra: What the strategy adds to λ.
        linear: The standard deviation of b, on the scale of a sum.
        output: That of the noise on the model.
    """

    parties: int
    l2: float
    extra: float
    linear: float
    output: float


def planned(name: str, dataset: Dataset, loss: Loss, epsilon: float) -> list[Noisy]:
    """The fixed λ, that of the rule, and the grid."""
    from fedpriv import strategies
    from fedpriv.privacy.budget import Budget
    from fedpriv.privacy.planning.objective.objective import ObjectiveMechanism
    from fedpriv.privacy.randomness import RandomStream

    found = []
    chosen = [(FIXED_L2, "model"), (FIXED_L2, "auto"), *((each, "model") for each in GRID)]
    for l2, choice in chosen:
        strategy: Any = strategies.build(
            name,
            task=task_of(dataset, loss, l2),
            budget=Budget(epsilon=epsilon, delta=1e-6),
            adjacency="replace-one",
            options={"regulariser": choice},
            noise=lambda index: RandomStream.seeded(0, "noise", index),
            run="benchmark",
        )
        (mechanism,) = strategy.plan.mechanisms
        joint = isinstance(mechanism, ObjectiveMechanism)
        found.append(
            Noisy(
                parties=1 if joint else strategy.task.parties,
                l2=strategy.task.regulariser,
                extra=mechanism.extra_regulariser if joint else 0.0,
                linear=mechanism.linear.noise_stddev if joint else 0.0,
                output=(mechanism.output if joint else mechanism).noise_stddev,
            )
        )
    return found


def found_models(data: Dataset, loss: Loss, settings: Sequence[Noisy], *, seed: int) -> Tensor:
    """The models of all settings, (settings, classes, features), in float32."""
    shape = (loss.outputs, data.train.X.shape[1])
    linear, output = torch.from_numpy(np.random.default_rng(seed).standard_normal((2, *shape)))
    problem = joined(data, loss)
    exact: dict[Noisy, Tensor] = {}  # by all but the noise on the model
    models = []
    for each in settings:
        quiet = replace(each, output=0.0)
        if quiet not in exact:
            exact[quiet] = minimiser(problem, quiet, each.linear * linear)
        models.append(exact[quiet] + each.output * output)
    return torch.stack(models).float()


def joined(data: Dataset, loss: Loss) -> ErmProblem:
    """All records in one problem; whose they are is a matter of its offsets."""
    from fedpriv.learning.erm.problem import ErmProblem

    return ErmProblem(
        features=torch.from_numpy(np.array(data.train.X)),
        labels=torch.from_numpy(np.array(data.train.y)),
        offsets=torch.tensor([0, len(data.train.y)]),
        loss=loss,
        regulariser=1.0,
    )


def minimiser(problem: ErmProblem, noisy: Noisy, linear: Tensor) -> Tensor:
    """The exact average of the parties' minimisers, each of so many records as it has."""
    from fedpriv.learning.erm.batch import ErmBatch
    from fedpriv.learning.erm.newton import newton
    from fedpriv.learning.erm.spaces import KrylovSpace, PrimalSpace

    count = len(problem.labels)
    offsets = torch.from_numpy(np.linspace(0, count, noisy.parties + 1).astype(np.int64))
    whose = replace(
        problem,
        offsets=offsets,
        regulariser=noisy.l2 + noisy.extra,
        linear=(linear[None] if problem.loss.outputs > 1 else linear) if noisy.linear else None,
    )
    space = PrimalSpace if problem.loss.outputs == 1 else KrylovSpace
    with torch.no_grad():
        batch = ErmBatch.of(whose)
        theta, _ = newton(space.of(batch), target=_TARGET, max_iterations=1000)
    average: Tensor = torch.tensordot(batch.sizes / count, theta, dims=1)
    return average


def measured(name: str, table: str, records: int | None, *, quick: bool) -> list[dict[str, Any]]:
    """One row per ε: the fixed λ, that of the rule, and the best of the grid, seed by seed."""
    dataset, loss = whole(table)
    first = cut(dataset, records, 0)
    by_budget = {epsilon: planned(name, first, loss, epsilon) for epsilon in EPSILONS}
    every = [each for one in by_budget.values() for each in one]
    few = records is None and len(dataset.train.y) < SMALL
    results = []
    for seed in range(2 if quick else SEEDS_OF_SMALL if few else SEEDS[records]):
        data = cut(dataset, records, seed)
        results.append(judged(data, loss, found_models(data, loss, every, seed=seed)))
    accuracy, losses = (np.array([pair[k] for pair in results]) for k in (0, 1))
    each, rows = len(every) // len(EPSILONS), []
    for place, epsilon in enumerate(EPSILONS):
        columns = slice(place * each, (place + 1) * each)
        rows.append(
            {
                "strategy": name,
                "table": table,
                "records": len(first.train.y),
                "epsilon": epsilon,
                "l2": by_budget[epsilon][1].l2,
                "best_l2": GRID[int(accuracy[:, columns][:, 2:].mean(axis=0).argmax())],
                **summary(accuracy[:, columns], losses[:, columns]),
            }
        )
    return rows


def main(arguments: list[str]) -> int:
    named = [argument for argument in arguments if not argument.startswith("--")]
    as_json, quick = "--json" in arguments, "--quick" in arguments
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for name, table, records in product(STRATEGIES, named or JUDGING, RECORDS):
        table = TWO_CLASSES.get(table, table) if name == OBJECTIVE else table  # noqa: PLW2901
        if records is None or records < len(whole(table)[0].train.y):
            rows += measured(name, table, records, quick=quick)
            for row in [] if as_json else rows[-len(EPSILONS) :]:
                print(name, f"λ {row['l2']:.1e}, best {row['best_l2']:.0e}", line(row), flush=True)
    own = {name: [row for row in rows if row["strategy"] == name] for name in STRATEGIES}
    missed = [f"{name}, {what}" for name in STRATEGIES for what in misses(own[name])]
    if as_json:
        told = {name: means(own[name]) for name in STRATEGIES}
        print(json.dumps({"rows": rows, "means": told, "missed": missed}, indent=2))
        return bool(missed)
    for name in STRATEGIES:
        for epsilon, ahead in means(own[name]).items():
            text = (f"{key} {mean:+.3f} ± {half:.3f}" for key, (mean, half) in ahead.items())
            print(f"{name}, ε = {epsilon:g}, in the mean:", ", ".join(text))
    print("\n".join(missed))
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
