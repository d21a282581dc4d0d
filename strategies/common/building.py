"""Set-up and info of a strategy: what it is built from, and what it tells about itself."""

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
"""Every round has a row in plan, ledger and history: many more than anybody trains fill a disk."""


UNIT_REASONS: dict[Unit, str] = {
    Unit.RECORD: (
        "one record may turn the whole of what its party sends, so that to hide a record takes the "
        "noise that hides its party"
    ),
    Unit.PERSON: "how far all records of a person move what it releases is not proved here",
    Unit.PARTY: (
        "a party moves such a sum by all of its records together, and nothing clips that: only "
        "updates of local training are clipped as a whole"
    ),
}
"""Why a strategy that does not name a unit is refused for it."""

LOCAL_NOISE = (
    "noise of every party's own covers what that party shows, and not what others show of the same "
    "person, or of one who takes that person's place elsewhere"
)
"""Why strategies in which the parties draw noise by themselves are not for persons."""


HEAVY_L2, LIGHT_L2 = 1e-3, 1e-5
"""λ where it is left to a strategy: for minimisers, whose noise grows with 1/λ; for descent."""


def heavy_l2(options: Any) -> float:
    """λ of a strategy that says nothing else, whatever its options are."""
    return HEAVY_L2


def light_l2(options: Any) -> float:
    """λ of a strategy whose noise does not grow with 1/λ."""
    return LIGHT_L2


def never(options: Any) -> bool:
    """That no setting of a strategy follows from its budget, whatever its options are."""
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
        descends: Whether it descends along clipped gradients, though it needs a convex problem: it
            then begins where the model does, and takes nothing from the author of a loss.
        noise_by: Who draws its noise: the server, which draws a release once, or each party for
            its own answer; "nobody" if it adds none. Whether a run in one place may be released
            depends on it, so every strategy must say.
        one_draw: Whether how long a release takes, or how many exchanges, follows from what was
            drawn at its beginning: it is then drawn once, however often a run is interrupted.
        asks: Which forms of query it puts (`Query.form`), but for the exchanges of a joint fit: a
            deployed party answers no others in a run of its name.
        options: What can be set.
        shares: Whether the parties can bring its noise in shares.
        units: Whose privacy it can protect: what its noise is calibrated to, and proved for. By
            name, as in ("record", "person"), or as `Unit`.
        because: Why not that of another unit, where there is more to say than in `UNIT_REASONS`.
        auto_l2: λ of a linear classifier, by the options, where ``model.l2`` is "auto".
        follows_budget: Whether settings that are left open follow from the budget, by the options:
            a twin without noise then has to be told whose settings it takes.
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
        """The reason why it is refused for a unit of privacy."""
        return self.because.get(unit, UNIT_REASONS[unit])

    def l2_for(self, options: Any, *, light: bool) -> float:
        """λ where the experiment leaves it open; ``light`` if the model takes a small one."""
        return self.auto_l2(options) if light else HEAVY_L2

    @property
    def minimises(self) -> bool:
        """Whether it looks for minimisers, which are certified, and the same from any start."""
        return self.convex_only and not self.descends

    @property
    def private(self) -> bool:
        """Whether it makes a promise, and so needs a budget."""
        return self.noise_by != "nobody"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What every strategy is built from, besides its options.

    Attributes:
        task: The public facts of the problem.
        adjacency: Which data sets a guarantee compares.
        run: The run that it is part of.
        allowance: (ε, δ) of the run; None for a strategy that promises nothing.
        noise_free: Whether a strategy with noise is to add none, for study: then there is no
            allowance, and a `NoiseFree` stands for the plan.
        sharing: Who brings shares of the noise; None if the server adds it.
        signature: What the plan of a user's own strategy calls it; empty for those of fedpriv.
        unit: Whose privacy it protects.
        sibling: Of a run without noise: the private run whose settings it takes; None if they are
            to be those of no noise.
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
        """What settings follow from: a twin's are those of the private run that it is the twin of.

        A twin of none has no budget; what follows from one is then that of no noise at all.
        """
        return self.sibling or self

    @property
    def budget(self) -> Budget:
        """The allowance of a private strategy, which does not start without one."""
        if self.allowance is None:
            raise ValueError("budget must be given for a private strategy, got None.")
        return self.allowance

    @property
    def released(self) -> bool:
        """Whether this is a real release, paid for by a ledger."""
        return self.run.real
