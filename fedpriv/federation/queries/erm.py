"""ErmQuery (empirical risk minimisation): the certified minimiser of a party's regularised risk.

One record moves it by at most 2G/(nλ), plus what the solver leaves open: `model_sensitivity`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from fedpriv._validate import require_choice, require_positive
from fedpriv.federation.queries.base import ON_A_VECTOR, Query, read_by, with_terms
from fedpriv.federation.queries.bounds import (
    certain_tolerance,
    model_sensitivity,
    objective_mechanism,
    objective_problem,
    require_conditioned,
)
from fedpriv.federation.queries.local_noise import LocalNoise
from fedpriv.federation.task import WEIGHTS
from fedpriv.learning.erm.sensitivity import require_lipschitz_minimiser
from fedpriv.privacy.events import ApproximateEvent
from fedpriv.privacy.planning.objective.objective import ObjectiveNoise
from fedpriv.privacy.unit import Unit

if TYPE_CHECKING:
    from collections.abc import Collection

    from fedpriv.federation.task import Task, Weights
    from fedpriv.privacy.adjacency import Adjacency
    from fedpriv.privacy.events import Event
    from fedpriv.privacy.mechanisms import Mechanism


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ErmQuery(Query):
    """The certified minimiser of a party's own regularised risk, times its weight.

    Attributes:
        regulariser: λ > 0.
        tolerance: The gradient norm that the party must certify.
        weights: "proportional": n_j/N; "equal": 1/m.
        local: Noise that the party adds to its answer itself, if any.
        objective: Noise that the party adds to its *objective*, if any.
    """

    kind: ClassVar[str] = "erm"
    events: ClassVar[tuple[type[Event], ...]] = (*ON_A_VECTOR, ApproximateEvent)
    units: ClassVar[tuple[Unit, ...]] = (Unit.RECORD, Unit.PERSON)
    sampling_rate: ClassVar[float] = 1.0
    joint_fit: ClassVar[bool] = False
    regulariser: float
    tolerance: float
    weights: Weights = "proportional"
    local: LocalNoise | None = field(default=None, metadata=read_by(with_terms(LocalNoise)))
    objective: ObjectiveNoise | None = field(
        default=None, metadata=read_by(with_terms(ObjectiveNoise))
    )

    def __post_init__(self) -> None:
        Query.__post_init__(self)
        require_positive(regulariser=self.regulariser, tolerance=self.tolerance)
        require_choice(WEIGHTS, weights=self.weights)
        if sum(noise is not None for noise in (self.local, self.objective, self.share)) > 1:
            raise ValueError(
                "only one of local, objective and share must be given: one noise per release."
            )

    @property
    def weighted(self) -> bool:
        """For records, certified for at most n_j of them. The number of persons is declared."""
        return self.event is None or self.event.unit is not Unit.PERSON

    @property
    def own_noise(self) -> LocalNoise | ObjectiveNoise | None:
        """Noise on the minimiser, or on what it minimises."""
        return self.objective if self.local is None else self.local

    def record_bound(self, task: Task) -> float:
        """G: nothing is clipped; the bound on a record's gradient on the domain of the loss."""
        return task.lipschitz

    def answer_width(self, task: Task) -> int:
        """d."""
        return task.dimension

    def reach(self, task: Task, size: int) -> float:
        """w_j·G/λ."""
        return task.model_weight(self.weights, size) * task.lipschitz / self.regulariser

    def sensitivity(
        self, task: Task, *, sizes: Collection[int], adjacency: Adjacency
    ) -> float | None:
        """That of the worst parties; for records, replace-one only, as `weighted` says."""
        return model_sensitivity(
            task,
            regulariser=self.regulariser,
            tolerance=self.tolerance,
            weights=self.weights,
            sizes=sizes,
            step=self.grid.step,
            adjacency=adjacency,
        )

    def local_mechanism(self, task: Task, size: int) -> Mechanism | None:
        """Noise on the answer; with a perturbed objective, noise that hides the solver's error."""
        if self.objective is None:
            return Query.local_mechanism(self, task, size)
        return objective_mechanism(self, self.objective, task, size).output

    def local_event(self, task: Task) -> Event | None:
        """The cost of a perturbed objective, or of noise on the answer."""
        if self.objective is None:
            return Query.local_event(self, task)
        size = costliest(
            task, self.objective, regulariser=self.regulariser, tolerance=self.tolerance
        )
        return objective_mechanism(self, self.objective, task, size).event()

    def check(self, task: Task) -> None:
        """The loss must have a minimiser of proven sensitivity, or meet the rules for b."""
        task.require_convex("a minimiser")
        if task.persons is not None and self.own_noise is not None:
            raise ValueError(
                "local and objective must be None for persons: noise of every party's own would "
                "have to cover what other parties show of the same person."
            )
        if self.objective is None:
            require_lipschitz_minimiser(task.loss, self.regulariser, headroom=task.most_members)
        else:
            objective_mechanism(self, self.objective, task, task.smallest)

    def check_certain(self, task: Task) -> None:
        """Every party must reach the tolerance, whatever its records and its noise are."""
        require_conditioned(task, regulariser=self.regulariser, headroom=task.most_members)
        certain = certain_tolerance(task, regulariser=self.regulariser, objective=self.objective)
        if not self.tolerance >= certain:
            raise ValueError(
                f"the query asks for a gradient norm of {self.tolerance:g}, but below "
                f"{certain:.3g} the records of this party, or its noise, would decide whether it "
                "answers."
            )


def costliest(
    task: Task, objective: ObjectiveNoise, *, regulariser: float, tolerance: float
) -> int:
    """The size of a party whose perturbed objective costs its records most.

    By a sound law all cost the same, and it is the smallest. Each record is at one party, so
    the whole costs no more than that.
    """

    def cost(size: int) -> float:
        return objective.cost(
            objective_problem(task, size, regulariser=regulariser, tolerance=tolerance)
        )

    if objective.law != "unsound-laplace":
        return task.smallest
    return max(sorted(task.size_counts), key=cost)
