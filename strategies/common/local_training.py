"""Local training of the parties: options, plans and noise that strategies of updates share."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from fedpriv.federation.queries.bounds import finest_grid, grid_of
from fedpriv.federation.queries.local_training import RANGE, answer_norm
from fedpriv.learning.training.settings import LocalSgd
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.planning.party import noise_multiplier, party_plan, update_noise
from fedpriv.secagg import FixedPoint
from fedpriv.strategies.common.building import Count, Positive, Rate, Rounds  # noqa: TC001 - pydantic
from fedpriv.strategies.common.optimiser import OptimiserOptions
from fedpriv.strategies.common.plans.sharing import with_shares

if TYPE_CHECKING:
    from fedpriv.federation.task import Task
    from fedpriv.privacy.planning.fixed_plan import FixedPlan
    from fedpriv.strategies.common.building import Setup

_COUNT_NOISE = 1 / 20  # of the parties that train: Andrew et al. 2021
_ADAPTIVE_RATE = 0.01


class LocalOptions(OptimiserOptions):
    """Options of strategies whose parties train locally between two exchanges.

    ``learning_rate``, ``optimiser``, ``momentum`` and ``averaging`` are the server's: "auto" is a
    rate of 1 for "sgd", so that the new model is the mean of the parties', 1 - β for "momentum",
    and 0.01 for the adaptive ones.

    Attributes:
        rounds: T, the number of exchanges.
        local_epochs: How many passes a party makes over its records between two exchanges; 1 if
            ``local_steps`` is not given either.
        local_steps: Instead, the number of steps that every party takes.
        batch_size: Number of records in a local step, or "all" for all records of the party.
        local_learning_rate: η of the parties, or "auto" for 1/M with M = B²·c + λ.
        weights: A party counts by its number of records ("proportional", at most 1), or all
            parties count equally ("equal").
        party_rate: The probability with which each party trains in a round; each draws for itself.
        cohort: Instead, the number of parties that train, chosen by the public seed: no
            amplification.
        clip: C, the bound on a party's update; "auto" is 1 with noise and none without; "none" is
            for runs without a guarantee.
        accountant: Name of the accountant, or "auto" for the tightest.
        stability: Added to the roots by which adaptive server optimisers divide.
        allow_swamped: Whether to run even if the noise on a mean update is longer than any update.
        seed: Seed of the initial weights of a model that is not linear, of the orders in which
            parties go through their records, and of cohorts.
    """

    rounds: Rounds = 100
    local_epochs: Count | None = None
    local_steps: Count | None = None
    batch_size: Count | Literal["all"] = 10
    local_learning_rate: Positive | Literal["auto"] = "auto"
    weights: Literal["equal", "proportional"] = "proportional"
    party_rate: Rate = 1.0
    cohort: Count | None = None
    clip: Positive | Literal["auto", "none"] = "auto"
    accountant: str = "auto"
    stability: Positive = 1e-3
    allow_swamped: bool = False
    seed: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        if self.local_epochs is not None and self.local_steps is not None:
            raise ValueError("local_epochs and local_steps must not both be given: choose one.")
        if self.cohort is not None and self.party_rate != 1:
            raise ValueError(
                f"party_rate must be 1 with a cohort, got {self.party_rate!r}: parties are either "
                "sampled or chosen as a cohort."
            )
        return self

    def local_training(
        self, task: Task, *, momentum: float = 0.0, proximal: float = 0.0
    ) -> LocalSgd:
        """What a party does between two exchanges."""
        steps, epochs = self.local_steps, self.local_epochs
        rate = self.local_learning_rate
        if rate == "auto":
            if not task.convex:
                raise ValueError(
                    "local_learning_rate must be a number for a model that is not linear, got "
                    "'auto': 1/M is known for convex problems only. Begin with 0.1, and try others "
                    "on public data."
                )
            rate = 1 / task.smoothness
        return LocalSgd(
            epochs=(epochs or 1) if steps is None else None,
            steps=steps,
            batch_size=None if self.batch_size == "all" else self.batch_size,
            learning_rate=rate,
            momentum=momentum,
            proximal=proximal,
            regulariser=task.regulariser,
        )

    @property
    def server_rate(self) -> float:
        """The learning rate of the server."""
        if self.learning_rate != "auto":
            return self.learning_rate
        match self.optimiser:
            case "auto" | "sgd" | "debiased-momentum":
                return 1.0
            case "momentum" | "nesterov":  # their steps add up to η/(1 − β) of a constant gradient
                return 1 - self.momentum
        return _ADAPTIVE_RATE

    def clip_norm(self, setup: Setup) -> float | None:
        """C, or None for no bound, which rules out any guarantee."""
        if self.clip == "auto":
            return None if setup.private.allowance is None else 1.0
        if self.clip == "none":
            if setup.allowance is not None:
                raise ValueError(
                    "clip must be a number for a private run, got 'none': without clipping, what "
                    "an update adds to a sum has no bound."
                )
            return None
        return self.clip


def total_weight(task: Task, options: LocalOptions) -> float:
    """Σ w_j over all parties, each at most 1."""
    if options.weights == "equal":
        return float(task.parties)
    return task.records / task.largest


def training_parties(task: Task, options: LocalOptions) -> float:
    """How many parties train in a round; with sampling, the expected number."""
    return options.party_rate * task.parties if options.cohort is None else options.cohort


def expected_weight(task: Task, options: LocalOptions) -> float:
    """The divisor of a sum of updates: the expected weight; for cohorts, the mean over them."""
    return total_weight(task, options) * training_parties(task, options) / task.parties


def update_grid(
    task: Task, *, step: float | None, bound: float, clipped: bool, noise_reach: float = 0.0
) -> FixedPoint:
    """The grid of a sum of updates: the plan's, or the finest where there is no noise.

    Args:
        task: The problem.
        step: The plan's, in units of the clip norm; None without one.
        bound: The largest |coordinate| of a sum of clipped updates, in that unit.
        clipped: Whether updates are clipped.
        noise_reach: Room for shares of noise.
    """
    if step is not None:
        return grid_of(step=step, bound=bound + noise_reach, parties=task.parties)
    return finest_grid(bound=2 * (bound if clipped else task.parties * RANGE))


def plan_updates(
    setup: Setup,
    options: LocalOptions,
    *,
    strategy: str,
    clip_norm: float,
    width: int,
    counted: bool = False,
    count_noise: float | None = None,
    sums: str = "sum of updates",
) -> tuple[FixedPlan, float | None]:
    """T noisy sums of updates, for the party unit; and κ, by which a count is scaled.

    Args:
        setup: What the strategy is built from.
        options: The strategy's options.
        strategy: Its name.
        clip_norm: C of the first round.
        width: The number of coordinates of an answer.
        counted: Whether a count follows the update.
        count_noise: σ_b of the count; None for a twentieth of the parties that train.
        sums: What gets noise in every round, in words.

    Raises:
        ValueError: The noise would swamp every update, judged by public numbers alone; or no
            theorem covers the combination.
    """
    task = setup.task
    _require_possible(setup, options)
    multiplier, accountant = noise_multiplier(
        budget=setup.budget,
        rounds=options.rounds,
        adjacency=setup.adjacency,
        sampling_rate=options.party_rate,
        accountant="auto" if setup.sharing else options.accountant,
    )
    counting = None
    if counted:
        noise = (
            _COUNT_NOISE * training_parties(task, options) if count_noise is None else count_noise
        )
        counting = update_noise(multiplier, noise) / noise
    norm = answer_norm(counting)
    bound = max(total_weight(task, options), task.parties * (counting or 0.0) / 2)
    step = FixedPoint.for_sum(
        bound=bound,
        sensitivity=setup.adjacency.sum_sensitivity * norm,
        dimension=width,
        noise_stddev=0.0,
        parties=task.parties,
    ).step
    plan = party_plan(
        strategy=strategy,
        budget=setup.budget,
        rounds=options.rounds,
        multiplier=multiplier,
        norm=norm,
        clip_norm=clip_norm,
        sizes=task.sizes,
        dimension=width,
        step=step,
        adjacency=setup.adjacency,
        sampling_rate=options.party_rate,
        accountant=accountant,
        moves=counted,
        sums=sums,
    )
    if setup.sharing is not None:
        moved = setup.adjacency.sum_sensitivity * norm
        shape = (1.0,) * options.rounds
        plan = with_shares(plan, setup.sharing, task, moved=moved, bound=bound, shape=shape)
    _require_audible(plan, setup, options)
    return plan, counting


def _require_possible(setup: Setup, options: LocalOptions) -> None:
    if setup.sharing is not None and setup.sharing.law == "polya":
        raise ValueError("share_law must not be 'polya': pure shares are for a single release.")
    if setup.budget.delta == 0:
        raise ValueError(
            "delta must be positive for noise on updates, got 0: the noise is Gaussian, or a sum "
            "of shares that is nearly Gaussian."
        )
    if options.party_rate < 1 and setup.adjacency is not Adjacency.ADD_REMOVE:
        raise ValueError(
            "adjacency must be 'add-remove' with Poisson sampling of the parties, got "
            f"{setup.adjacency.value!r} and party_rate = {options.party_rate:g}: replacing a party "
            "is two steps of add-remove."
        )
    law = "auto" if setup.sharing is None else setup.sharing.law
    if options.party_rate < 1 and law not in ("auto", "skellam"):
        raise ValueError(
            f"party_rate must be 1 with {law!r} shares, got {options.party_rate:g}: amplification "
            f"by sampling is proved for Skellam noise."
        )


def _require_audible(plan: FixedPlan, setup: Setup, options: LocalOptions) -> None:
    """Refuse, before the first round and from public numbers, noise longer than any mean update."""
    task = setup.task
    stddev = max(mechanism.noise_stddev for mechanism in plan.mechanisms)
    ratio = stddev * sqrt(plan.dimension) / expected_weight(task, options)
    if ratio <= 1 or options.allow_swamped:
        return
    raise ValueError(
        f"the noise would swamp the model: on a mean of updates that are at most 1 clip norm long "
        f"it is {ratio:.3g} clip norms long, with {task.parties} parties, {plan.dimension} "
        "coordinates and this budget. Hiding whole parties works well among thousands of them. Use "
        "more parties, a smaller model, fewer rounds or a larger epsilon; or protect records "
        "instead, privacy.unit = 'record', by gradient-perturbation. To run anyway: "
        "strategy.allow_swamped = true."
    )
