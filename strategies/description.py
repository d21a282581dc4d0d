"""Federated statistics: one noisy vector of sums that describes a table.

    s ← Σ over all records of the vector that a design states     (a secure sum over the parties)
    publish s + N(0, σ²)                                           (one release)

By party, s has one such vector for every party, side by side, and totals follow from the parties'
noisy sums: a record is in only one of them, so that each costs what the total alone would cost.
With noise at the parties, each adds all of the noise to its own part, since nobody else is in it:

    every party:  s_j ← Σ over its records + N(0, σ²)             (masked, and seen by the server)

Not a learning algorithm, so not in the list of strategies: `fedpriv describe` runs it. Everything
else is as in every strategy: reserve, ask, add noise, commit.
"""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fedpriv.federation.queries.bounds import finest_grid, grid_of
from fedpriv.federation.queries.kinds import StatisticsQuery
from fedpriv.federation.queries.local_noise import LocalNoise
from fedpriv.federation.queries.room import room
from fedpriv.federation.queries.statistics import (
    BY_PARTY,
    check_block,
    columns_digest,
    parts_of,
    require_parts,
    statistics_sensitivity,
)
from fedpriv.federation.strategy.base import SumStrategy
from fedpriv.federation.table_task import TableTask
from fedpriv.privacy.planning.noise_free import NoiseFree
from fedpriv.privacy.planning.statistics.statistics import (
    RELEASED_BY_PARTY,
    RELEASED_MAGNITUDES,
    RELEASED_SUMS,
    statistics_plan,
    statistics_step,
)
from fedpriv.privacy.planning.statistics.statistics_design import weigh
from fedpriv.privacy.unit import Unit, sizes_are_public
from fedpriv.secagg.numbers.fixed_point import NOISE_DEVIATIONS
from fedpriv.strategies.common.building import Setup, StrategyInfo
from fedpriv.strategies.common.describing import DescribeOptions, items_of
from fedpriv.strategies.common.plans.sharing import released, share_of, share_reach, with_shares

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.federation.federation import Sum
    from fedpriv.federation.queries.statistics import PerPerson
    from fedpriv.federation.strategy.base import Run
    from fedpriv.privacy.planning.fixed_plan import FixedPlan
    from fedpriv.privacy.planning.statistics.statistics_design import Design

DESCRIBE = "describe"
_HEAD = 2


class Description(SumStrategy):
    """One release: the noisy sums of a design.

    What the ledger keeps of it begins with who was in the sum, which is public: the number of
    parties, and of records as their stated sizes have it.

    Attributes:
        design: What was asked for.
        sums: The noisy sums over all parties, weights included; None before the release.
        party_sums: Those of every party, (m, width); None unless asked for.
        records: The public number of records of the parties in the sum.
        parties: The number of parties in the sum.
    """

    name: ClassVar[str] = DESCRIBE
    task: TableTask

    def __init__(
        self,
        *,
        task: TableTask,
        plan: FixedPlan | NoiseFree,
        run: Run,
        design: Design,
        per_person: PerPerson,
        step: float,
        by_party: bool = False,
    ) -> None:
        self._parts = parts_of(task, by_party=by_party)
        self.width = design.width * self._parts
        super().__init__(task=task, plan=plan, run=run)
        self.design = design
        self.per_person: PerPerson = per_person
        self.by_party = by_party
        self.sums: NDArray[np.float64] | None = None
        self.party_sums: NDArray[np.float64] | None = None
        self.records, self.parties = task.records, task.parties
        self._step = step
        self._mechanism, self._local = None, None
        if not isinstance(plan, NoiseFree):
            self._mechanism = plan.mechanisms[0]
            if by_party and plan.noise_at == "parties":
                self._local = LocalNoise.like(self._mechanism)

    @property
    def noise_stddev(self) -> float:
        """Of every number of the total, which by party is the sum of as many noisy sums."""
        return sqrt(self._parts) * self.part_stddev

    @property
    def part_stddev(self) -> float:
        """Of every number that is released; with shares, by how many parties added them."""
        if self._mechanism is None:
            return 0.0
        stddev_of = getattr(self._mechanism, "stddev_of", None)
        if stddev_of is not None:
            return float(stddev_of(self.parties))
        return self._mechanism.noise_stddev

    def _query(self) -> StatisticsQuery:
        bound = reach_of(self.design, self.task, self.per_person)
        bound += share_reach(self._mechanism, self.task)
        if self._local is not None:
            bound += NOISE_DEVIATIONS * sqrt(self.task.parties) * self.part_stddev
        return StatisticsQuery(
            run=self._run.name,
            round=self._round,
            grid=grid_of(step=self._step, bound=bound, parties=self.task.parties),
            event=self._event(),
            share=share_of(self._mechanism),
            design=self.design,
            per_person=self.per_person,
            by_party=self.by_party,
            columns=columns_digest(self.design, self.task.columns),
            local=self._local,
        )

    def _release(self, answer: Sum) -> NDArray[np.float64]:
        if self.by_party and len(answer.sizes) != self.task.parties:
            raise RuntimeError(
                f"a description by party needs all {self.task.parties} parties in its sum, got "
                f"{len(answer.sizes)}: of the others it would tell nothing, or noise."
            )
        there = [sum(answer.sizes), len(answer.sizes)]
        if self._local is not None:  # it came with its noise
            return np.concatenate([there, answer.value])
        return np.concatenate([there, released(self._mechanism, answer, self._stream)])

    @property
    def _release_length(self) -> int:
        return _HEAD + self._parts * self.design.width

    def _update(self, release: NDArray[np.float64]) -> None:
        self.records, self.parties = (int(number) for number in release[:_HEAD])
        parts = np.array(release[_HEAD:]).reshape(self._parts, -1)
        self.sums = parts.sum(axis=0)
        self.party_sums = parts if self.by_party else None

    def _state(self) -> dict[str, Any]:
        if self.sums is None:
            return {}
        numbers = self.sums if self.party_sums is None else self.party_sums.ravel()
        return {"release": np.concatenate([[self.records, self.parties], numbers])}

    def _set_state(self, state: dict[str, Any]) -> None:
        if "release" in state:
            self._update(np.array(state["release"]))


INFO = StrategyInfo(
    name=DESCRIBE,
    summary="noisy counts, moments, quantiles and tables of a table's columns",
    noise_by="server",
    asks=("statistics", BY_PARTY),
    convex_only=False,
    options=DescribeOptions,
    shares=True,
    units=(Unit.RECORD, Unit.PERSON),
)


def reach_of(design: Design, task: TableTask, per_person: PerPerson) -> float:
    """The largest |coordinate| of a sum without noise, with a margin for rounding."""
    records = 1
    if task.persons is not None and per_person == "records":
        records = task.persons.records or 1
    units = sum(count * room(task, size) for size, count in task.size_counts.items())
    return units * records * design.largest * (1 + 2.0**-20)


def released_words(options: DescribeOptions) -> str:
    """What a description releases, in words."""
    if options.magnitudes:
        return RELEASED_MAGNITUDES
    return RELEASED_BY_PARTY if options.by_party else RELEASED_SUMS


def build(setup: Setup, options: DescribeOptions) -> Description:
    """The description of a table, planned within its budget."""
    task = setup.task
    if not isinstance(task, TableTask):
        raise ValueError("strategy 'describe' is for `fedpriv describe`, which reads a table.")
    counted = not sizes_are_public(setup.unit, setup.adjacency)
    items, shares = items_of(options, task.columns, total=counted)
    design = weigh(items, shares, adjacency=setup.adjacency, unit=setup.unit)
    for block in design.blocks:
        check_block(block, task.columns)
    records = 1
    if task.persons is not None and options.per_person == "records":
        if task.persons.records is None:
            raise ValueError(
                "persons.records must be given with describe.per_person = 'records': how far a "
                "person moves a sum depends on the most records that one has."
            )
        records = task.persons.records
    require_parts(design, task, by_party=options.by_party)
    width = design.width * parts_of(task, by_party=options.by_party)
    step = statistics_step(width=width)
    plan: FixedPlan | NoiseFree
    if setup.noise_free:
        step = finest_grid(bound=reach_of(design, task, options.per_person)).step
        plan = NoiseFree(step=step)
    else:
        moved = statistics_sensitivity(
            design,
            task,
            adjacency=setup.adjacency,
            step=step,
            records=records,
            by_party=options.by_party,
        )
        plan = statistics_plan(
            budget=setup.budget,
            sensitivity=moved,
            width=width,
            sizes=task.sizes,
            step=step,
            adjacency=setup.adjacency,
            unit=setup.unit,
            released=released_words(options),
        )
        if setup.sharing is not None and options.by_party:
            plan = replace(plan, query=f"{plan.query}, with noise of its own", noise_at="parties")
        elif setup.sharing is not None:
            bound = reach_of(design, task, options.per_person)
            plan = with_shares(plan, setup.sharing, task, moved=moved, bound=bound, shape=(1.0,))
    return Description(
        task=task,
        plan=plan,
        run=setup.run,
        design=design,
        per_person=options.per_person,
        step=step,
        by_party=options.by_party,
    )
