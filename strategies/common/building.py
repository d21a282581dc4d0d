"""Set-up and info of a strategy: what it is built from and how it describes itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from fedpriv.privacy.unit import DEFAULT_UNIT, Unit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fedpriv.federation.strategy.base import Run, SumStrategy
    from fedpriv.federation.task import Task
    from fedpriv.privacy.adjacency import Adjacency
    from fedpriv.privacy.budget import Budget
    from fedpriv.privacy.planning.shares import Sharing

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, lt=1)]
Rate = Annotated[float, Field(gt=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Rounds = Annotated[int, Field(ge=1, le=1_000_000)]
"""Every round has a row in plan, ledger and history: more rounds than this could fill a disk."""


UNIT_REASONS: dict[Unit, str] = {
    Unit.RECORD: (
        "one record may change everything that its party sends, so that hiding a record takes as "
        "much noise as hiding its party"
    ),
    Unit.PERSON: "how far all of a person's records move what it releases is not proved here",
    Unit.PARTY: (
        "all of a party's records move such a sum together, and nothing clips their joint part: "
        "only updates of local training are clipped as a whole"
    ),
}
"""Why a strategy is refused for a unit that it does not name."""

LOCAL_NOISE = (
    "each party's own noise hides what that party shows of a person, but not what others show of "
    "the same person, or of one who takes that person's place elsewhere"
)
"""Why strategies whose parties add noise independently do not support persons."""


HEAVY_L2, LIGHT_L2 = 1e-3, 1e-5
"""λ where the strategy chooses it: for minimisers, whose noise grows with 1/λ; for descent."""


def heavy_l2(options: Any) -> float:
    """λ of a strategy that states no other, whatever its options."""
    return HEAVY_L2


def light_l2(options: Any) -> float:
    """λ of a strategy whose noise does not grow with 1/λ."""
    return LIGHT_L2


def never(options: Any) -> bool:
    """No setting of the strategy follows from its budget, whatever its options."""
    return False


class Options(BaseModel):
    """Options of a strategy, as an experiment file states them; unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyInfo:
    """One line of the list of strategies.

    Attributes:
        name: What an experiment calls it.
        summary: What it does, in a sentence.
        convex_only: Whether it needs a convex problem.
        descends: Whether it descends along clipped gradients although it needs a convex problem:
            it then starts where the model does, and relies on no claim of a loss's author.
        noise_by: Who draws its noise: the server, once per release, or each party for its own
            answer; "nobody" if it adds none. It decides whether a run in one place may be
            released, so every strategy must state it.
        one_draw: Whether the time or the number of exchanges of a release depends on what was
            drawn at its beginning: it is then drawn once, however often a run is interrupted.
        asks: The forms of query that it sends (`Query.form`), except the exchanges of a joint fit:
            a deployed party answers no others in a run of its name.
        options: The class of its options.
        shares: Whether the parties can add its noise in shares.
        units: Whose privacy it can protect: what its noise is calibrated to and proved for. By
            name, as in ("record", "person"), or as `Unit`.
        because: Why another unit is refused, where there is more to say than `UNIT_REASONS`.
        auto_l2: λ of a linear classifier, by the options, where ``model.l2`` is "auto".
        follows_budget: Whether settings left open follow from the budget, by the options: a twin
            without noise then needs to know whose settings it takes.
        guest: What builds a strategy from a file of the user's own; None for those of fedpriv.
    """

    name: str
    summary: str
    noise_by: Literal["server", "parties", "nobody"]
    convex_only: bool
    options: type[BaseModel]
    asks: tuple[str, ...] = ()
    shares: bool = False
    one_draw: bool = False
    descends: bool = False
    units: tuple[Unit, ...] = (Unit.RECORD,)
    because: Mapping[Unit, str] = field(default_factory=dict, hash=False)
    auto_l2: Callable[[Any], float] = heavy_l2
    follows_budget: Callable[[Any], bool] = never
    guest: Callable[[Setup, Any], SumStrategy] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "units", tuple(Unit(unit) for unit in self.units))

    def why_not(self, unit: Unit) -> str:
        """The reason why a unit of privacy is refused."""
        return self.because.get(unit, UNIT_REASONS[unit])

    def l2_for(self, options: Any, *, light: bool) -> float:
        """λ where the experiment leaves it open; ``light`` if the model takes a small one."""
        return self.auto_l2(options) if light else HEAVY_L2

    @property
    def minimises(self) -> bool:
        """Whether it computes minimisers, which are certified, and the same from any start."""
        return self.convex_only and not self.descends

    @property
    def private(self) -> bool:
        """Whether it has a privacy guarantee, and so needs a budget."""
        return self.noise_by != "nobody"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What every strategy is built from, besides its options.

    Attributes:
        task: The public facts of the problem.
        adjacency: Which data sets a guarantee compares.
        run: The run that it is part of.
        allowance: (ε, δ) of the run; None for a strategy without a guarantee.
        noise_free: Whether a strategy with noise adds none, for study: it then has no allowance,
            and a `NoiseFree` in place of the plan.
        sharing: Who adds shares of the noise; None if the server adds it.
        signature: The name of a user's own strategy in its plan; empty for those of fedpriv.
        unit: Whose privacy it protects.
        sibling: Of a run without noise: the private run whose settings it takes; None for
            settings that suit no noise.
    """

    task: Task
    adjacency: Adjacency
    run: Run
    allowance: Budget | None = None
    noise_free: bool = False
    sharing: Sharing | None = None
    signature: str = ""
    unit: Unit = DEFAULT_UNIT
    sibling: Setup | None = None

    @property
    def private(self) -> Setup:
        """The set-up that settings follow from: for a twin, that of its private run.

        A twin of no run has no budget; settings that need one are then those for no noise.
        """
        return self.sibling or self

    @property
    def budget(self) -> Budget:
        """The budget of a private strategy, which cannot start without one."""
        if self.allowance is None:
            raise ValueError("budget must be given for a private strategy, got None.")
        return self.allowance

    @property
    def released(self) -> bool:
        """Whether this is a real release, paid for by a ledger."""
        return self.run.real
