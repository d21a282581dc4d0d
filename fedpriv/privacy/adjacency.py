"""Adjacency: which two data sets a guarantee compares.

Every event, plan, ledger row and report carries it.
"""

from __future__ import annotations

from enum import StrEnum


class Adjacency(StrEnum):
    """The adjacency relation: when two data sets are neighbours.

    ``REPLACE_ONE``: one record is exchanged for another, at its place and at its party; how many
    records each party has is public. A sum of vectors of norm at most C then moves by at most 2C.

    ``ADD_REMOVE``: one record joins or leaves. The same sum moves by at most C. How many records
    there are is private: whatever divides, weights or calibrates is a number that was declared
    beforehand, the same on both data sets. It is the relation that Poisson sampling is analysed
    under.
    """

    ADD_REMOVE = "add-remove"
    REPLACE_ONE = "replace-one"

    @property
    def sum_sensitivity(self) -> float:
        """L2 sensitivity of a sum of vectors of norm at most 1: 1 or 2."""
        return 1.0 if self is Adjacency.ADD_REMOVE else 2.0


DEFAULT_ADJACENCY = Adjacency.REPLACE_ONE
"""Where nothing else is said: the stronger one, which two add-remove steps make."""
