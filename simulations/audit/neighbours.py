"""Two neighbouring tables of an experiment, each prepared as the experiment's own would be.

The records are a `Scene` of `fedpriv.audit.canaries`. They enter after the table is read: test
split, bounds, parties, sizes and all later steps are the experiment's own, run on either table. So
a step that moves more than one record, such as a split by position, is detected.

Few other records are needed: a sum of gradients is divided, weighted and calibrated by the public
sizes, which stay those of the experiment whatever the true number of records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.data import hold_out
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.unit import Unit
from fedpriv.simulations.audit.crafted import crafted, raw_rows
from fedpriv.simulations.experiment.records.stand_in import StandIn
from fedpriv.simulations.run.prepare import prepare

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.audit.canaries import Scene
    from fedpriv.simulations.run.prepare import Prepared

_ROWS_OF_A_PARTY = 20
_ATTEMPTS = 200
_CANARY = "~canary"  # sorted last: the persons of samples stand in the order of their names


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Neighbours:
    """An experiment on two neighbouring tables.

    Attributes:
        name: Of the scene.
        first: With the canary.
        second: Without it, or with another in its place.
        party: Which holds it, or the first that does.
    """

    name: str
    first: Prepared
    second: Prepared
    party: int

    @property
    def public_facts_differ(self) -> str:
        """The public fact that wrongly differs; empty if none does."""
        one, other = self.first.task, self.second.task
        if one.sizes != other.sizes:
            return "the public sizes of the parties differ between neighbours"
        return "" if one == other else "the public facts of the problem differ between neighbours"


def neighbours(
    own: Prepared, scene: Scene, *, party: int, spread: bool, last: bool = False
) -> Neighbours:
    """The experiment ``own`` on the two tables of a scene.

    Args:
        own: The experiment, on its own records: of these only public facts are used.
        scene: The records.
        party: Who holds the canary.
        spread: Whether the others are dealt out to all parties; if not, they are at ``party``, and
            everybody else has one record.
        last: Whether the canary's record stands last and not first: so that the coins of all others
            are the same, where samples are drawn.
    """
    table = _Table(own, scene, party=party, spread=spread, last=last)
    first, second = (
        prepare(own.experiment, stand_in=table.stand_in(with_canary=present))
        for present in (True, False)
    )
    return Neighbours(name=scene.name, first=first, second=second, party=party)


class _Table:
    """The rows of a scene, as those of the experiment's data set."""

    def __init__(
        self, own: Prepared, scene: Scene, *, party: int, spread: bool, last: bool
    ) -> None:
        self._own, self._scene, self._last = own, scene, last
        self._unit = Unit(own.experiment.privacy.unit)
        self._replacing = own.experiment.privacy.adjacency == Adjacency.REPLACE_ONE.value
        m, count = own.task.parties, len(scene.rows)
        held = np.arange(count) % m if spread else np.full(count, party)
        # Nobody is without a record, except a party or person that is itself the canary.
        lonely = np.setdiff1d(np.arange(m), held)
        self._held = np.concatenate([held, lonely])
        rng = np.random.default_rng(0)
        more = rng.normal(size=(len(lonely), scene.rows.shape[1]))
        more /= np.linalg.norm(more, axis=1, keepdims=True)
        self._rows = np.concatenate([scene.rows, more])
        self._positive = np.concatenate([scene.positive, rng.random(len(lonely)) < 0.5])
        if self._unit is Unit.PARTY:
            others = self._held != party
            self._rows, self._positive = self._rows[others], self._positive[others]
            self._held = self._held[others]
        self._canary_parties = self._places(party)
        self._mark = self._trained_on() if not own.own_test else 0

    def stand_in(self, *, with_canary: bool) -> StandIn:
        experiment = self._own.experiment
        return StandIn(
            dataset=self._dataset(with_canary=with_canary),
            by_hash=not self._own.own_test,
            sizes=self._own.task.sizes if experiment.privacy.sizes_public else None,
        )

    def _places(self, party: int) -> NDArray[np.int64]:
        """The party of every record of the canary: one, a person's, or all of a party."""
        if self._unit is Unit.RECORD:
            return np.array([party])
        if self._unit is Unit.PARTY:
            return np.full(min(_ROWS_OF_A_PARTY, self._own.task.sizes[party]), party)
        persons = self._own.task.persons
        records = 1 if persons is None or persons.records is None else persons.records
        parties = 1 if persons is None else min(persons.parties, self._own.task.parties)
        return np.repeat((party + np.arange(parties)) % self._own.task.parties, records)

    def _dataset(self, *, with_canary: bool, alone: bool = False, mark: int | None = None) -> Any:
        """The data set; ``alone``: without the others."""
        scene, mark = self._scene, self._mark if mark is None else mark
        x, label = (
            (scene.canary, scene.label) if with_canary else (scene.instead, scene.other_label)
        )
        absent = not (with_canary or self._replacing)
        places = self._canary_parties[:0] if absent else self._canary_parties
        own = np.tile(x, (len(places), 1))
        none = slice(0, 0) if alone else slice(None)
        blocks = [
            (raw_rows(self._own, own, mark), np.full(len(places), label), places, _CANARY),
            (
                raw_rows(self._own, self._rows[none]),
                self._positive[none],
                self._held[none],
                "other",
            ),
        ]
        if self._last:
            blocks.reverse()
        rows, labels, held = (np.concatenate([block[i] for block in blocks]) for i in range(3))
        names = [
            f"{who} {mark if who == _CANARY else number}"
            for _, _, parties, who in blocks
            for number in range(len(parties))
        ]
        return crafted(
            self._own, rows, labels, held, persons=names if self._unit is Unit.PERSON else None
        )

    def _trained_on(self) -> int:
        """A mark with which no hash puts the canary, or its replacement, in the test set."""
        section, seed = self._own.experiment.data, self._own.experiment.seed_of("test split")
        fraction = 0.2 if section.test_fraction is None else section.test_fraction
        if self._unit is Unit.PARTY:
            return 0  # some of its records are
        for mark in range(_ATTEMPTS):
            alone = (
                self._dataset(with_canary=present, alone=True, mark=mark)
                for present in ((True, False) if self._replacing else (True,))
            )
            if not any(len(hold_out(each, fraction=fraction, seed=seed).test) for each in alone):
                return mark
        return 0
