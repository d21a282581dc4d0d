"""Private evaluation: noisy counts of right and wrong answers on records that are held out.

    (r, w) ← Σ over all parties of how many held-out records θ classifies rightly, and wrongly
    publish (r, w) + N(0, σ²)                                  (one release)

Not a learning algorithm, so not in the list of strategies: it evaluates a released model and leaves
it unchanged. Everything else is as in every strategy: reserve, ask, add noise, commit.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING, ClassVar

from fedpriv._validate import require_rate
from fedpriv.federation.queries.accuracy import COUNTS, MOST_RECORDS, count_sensitivity
from fedpriv.federation.queries.bounds import grid_of
from fedpriv.federation.queries.kinds import AccuracyQuery
from fedpriv.federation.strategy.base import SumStrategy
from fedpriv.privacy.planning.counts import counts_plan
from fedpriv.privacy.unit import Unit
from fedpriv.strategies.common.plans.sharing import released, share_of, share_reach, with_shares

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fedpriv.federation.federation import Sum
    from fedpriv.federation.strategy.base import Run
    from fedpriv.federation.task import Task
    from fedpriv.privacy.planning.fixed_plan import FixedPlan
    from fedpriv.strategies.common.building import Setup

STEP = 2.0**-10  # of a count: rounding to the grid costs a thousandth of the noise


class Accuracy(SumStrategy):
    """One release: the noisy counts. The model stays unchanged.

    Attributes:
        counts: Right and wrong, with noise; None before the release.
    """

    name: ClassVar[str] = "accuracy"
    width = COUNTS

    def __init__(
        self, *, task: Task, plan: FixedPlan, run: Run, theta: NDArray[np.float64]
    ) -> None:
        super().__init__(task=task, plan=plan, run=run, start=theta)
        self._plan = plan
        self.counts: NDArray[np.float64] | None = None

    def _query(self) -> AccuracyQuery:
        mechanism = self._plan.mechanisms[self._round]
        bound = self.task.parties * MOST_RECORDS + share_reach(mechanism, self.task)
        return AccuracyQuery(
            run=self._run.name,
            round=self._round,
            grid=grid_of(step=self._plan.step, bound=bound, parties=self.task.parties),
            event=self._event(),
            share=share_of(mechanism),
            theta=self._theta,
        )

    def _release(self, answer: Sum) -> NDArray[np.float64]:
        return released(self._plan.mechanisms[self._round], answer, self._stream)

    def _update(self, release: NDArray[np.float64]) -> None:
        self.counts = release


def build(setup: Setup, theta: NDArray[np.float64]) -> Accuracy:
    """The evaluation of the model ``theta``, planned within its budget."""
    task = setup.task
    if setup.unit is not Unit.RECORD:
        raise ValueError(
            f"unit must be 'record' for a private evaluation, got {setup.unit.value!r}: it counts "
            f"records, and how far {setup.unit.words} can move the counts has no bound."
        )
    moved = count_sensitivity(setup.adjacency)
    plan = counts_plan(
        budget=setup.budget,
        sensitivity=moved,
        counts=COUNTS,
        sizes=task.sizes,
        step=STEP,
        adjacency=setup.adjacency,
        unit=setup.unit,
    )
    if setup.sharing is not None:
        bound = float(task.parties * MOST_RECORDS)
        plan = with_shares(plan, setup.sharing, task, moved=moved, bound=bound, shape=(1.0,))
    return Accuracy(task=task, plan=plan, run=setup.run, theta=theta)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """An accuracy from noisy counts.

    Attributes:
        accuracy: r/(r + w), within [0, 1]; None if the noise leaves no record.
        low: The lower end of the interval.
        high: Its upper end.
        confidence: The probability that the interval covers the accuracy *on these records*, over
            the noise alone. The accuracy on the population is another question.
        records: r + w, noisy: an estimate of the number of records.
        noise_stddev: The standard deviation of each count's noise.
    """

    accuracy: float | None
    low: float
    high: float
    confidence: float
    records: float
    noise_stddev: float


def estimate(
    counts: NDArray[np.float64], *, noise_stddev: float, confidence: float = 0.95
) -> Estimate:
    """The accuracy estimated from noisy counts, with an interval (Fieller 1954).

    The accuracy a satisfies (1 - a)·r - a·w = 0 for the true counts; for the noisy ones the left
    side is normal with mean 0 and variance σ²((1 - a)² + a²). The interval has every a for which
    the left side is within z standard deviations of 0; no ratio of normals is approximated. Shares
    of noise are sized for the fewest honest parties; when more answer, the noise is wider, never
    narrower: state the widest ``noise_stddev``.
    """
    require_rate(confidence=confidence)
    right, wrong = (float(count) for count in counts)
    total = right + wrong
    z = NormalDist().inv_cdf((1 + confidence) / 2) if confidence < 1 else inf
    low, high = _fieller(right, total, z * noise_stddev)
    return Estimate(
        accuracy=min(1.0, max(0.0, right / total)) if total > 0 else None,
        low=low,
        high=high,
        confidence=confidence,
        records=total,
        noise_stddev=noise_stddev,
    )


def _fieller(right: float, total: float, reach: float) -> tuple[float, float]:
    """All a in [0, 1] with (right - a·total)² ≤ reach²·((1 - a)² + a²)."""
    # A·a² - 2B·a + C ≤ 0
    a, b, c = total**2 - 2 * reach**2, right * total - reach**2, right**2 - reach**2
    inside = b**2 - a * c
    if total <= 0 or a <= 0 or inside < 0:  # the noise is as large as the counts
        return 0.0, 1.0
    ends = ((b - sqrt(inside)) / a, (b + sqrt(inside)) / a)
    low, high = (min(1.0, max(0.0, end)) for end in ends)
    return low, high
