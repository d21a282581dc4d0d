"""Adjacency: which two data sets a guarantee compares.

Every event, plan, ledger row and report carries it.
"""

from __future__ import annotations

from enum import StrEnum


class Adjacency(StrEnum):
    """The adjacency relation: when two data sets are neighbours.

    ``REPLACE_ONE``: one record is exchanged for another, at the same place and party; the number of
    records of each party is public. A sum of vectors of norm at most C then moves by at most 2C.

    ``ADD_REMOVE``: one record joins or leaves. The same sum moves by at most C. The number of
    records is private: everything is divided, weighted and calibrated by numbers declared
    beforehand, the same on both data sets. Poisson sampling is analysed under this relation.
    """

    ADD_REMOVE = "add-remove"
    REPLACE_ONE = "replace-one"

    @property
    def sum_sensitivity(self) -> float:
        """L2 sensitivity of a sum of vectors of norm at most 1: 1 or 2."""
        return 1.0 if self is Adjacency.ADD_REMOVE else 2.0


DEFAULT_ADJACENCY = Adjacency.REPLACE_ONE
"""The default: the stronger one, which two add-remove steps make."""
