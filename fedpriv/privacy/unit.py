"""The unit of privacy: whose records a guarantee protects: a record, a person, or a whole party.

Adjacency says what happens to the unit, whether it joins or leaves or is exchanged; the unit says
how much of the data that is. Every event, plan, ledger, policy and statement carries both, and
guarantees for different units are never added up.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NoReturn

from fedpriv.privacy.adjacency import Adjacency


class Unit(StrEnum):
    """The unit of privacy: how much of the data two neighbours differ in.

    ``RECORD``: one record. A person with several is protected less, by group privacy.

    ``PERSON``: all records of one person, at most k at one party, at no more than p parties:
    declared bounds, which a party enforces where it can see them.

    ``PARTY``: all records of one party. Under add-remove its whole answer joins or leaves the sum,
    and the number of parties stays a public constant; under replace-one its records are exchanged
    for any others.
    """

    RECORD = "record"
    PERSON = "person"
    PARTY = "party"

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        known = ", ".join(repr(unit.value) for unit in cls)
        raise ValueError(f"unit must be one of {known}; got {value!r}.")

    @property
    def counted(self) -> str:
        """What public sizes are numbers of: records, or persons where those are the unit."""
        return "persons" if self is Unit.PERSON else "records"

    @property
    def words(self) -> str:
        """What is protected, in words, for statements and tables."""
        return "one record" if self is Unit.RECORD else f"all records of one {self.value}"


DEFAULT_UNIT = Unit.RECORD
"""The default: the weakest guarantee of the three, so that no stronger one is implied."""

_JOINED = {
    Unit.RECORD: "one record more or less",
    Unit.PERSON: "one person more or less, with all their records",
    Unit.PARTY: "the whole answer of one party more or less",
}
_EXCHANGED = {
    Unit.RECORD: "one record exchanged for another, at its place and its party",
    Unit.PERSON: "all records of one person exchanged for those of another",
    Unit.PARTY: "all records of one party exchanged for others",
}


def neighbours_in_words(unit: Unit, adjacency: Adjacency) -> str:
    """In what two neighbouring data sets differ, in words."""
    return (_EXCHANGED if adjacency is Adjacency.REPLACE_ONE else _JOINED)[unit]


def sizes_are_public(unit: Unit, adjacency: Adjacency) -> bool:
    """Whether neighbours have the same numbers of records, so that n_j and N may be public.

    Only if a single record is exchanged for another. Where one joins or leaves, and where a person
    or a party has any number of them, neighbours differ in these numbers: everything must then be
    divided, weighted, calibrated and printed by numbers declared beforehand.
    """
    return unit is Unit.RECORD and adjacency is Adjacency.REPLACE_ONE


def person_steps(unit: Unit, adjacency: Adjacency, *, records: int, parties: int) -> int:
    """How many neighbouring steps hide a whole person: the group size for group privacy.

    A person with so many ``records`` takes a step for each if the unit is a record, one step if it
    is a person, and one for each of the parties that may hold them if it is a party. Where a party
    can only join or leave, changing what it holds takes two.
    """
    match unit:
        case Unit.RECORD:
            return records
        case Unit.PERSON:
            return 1
        case Unit.PARTY:
            return min(records, parties) * (1 if adjacency is Adjacency.REPLACE_ONE else 2)
