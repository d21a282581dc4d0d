"""Secure-aggregation level agreed on by server and parties: off, semi-honest, active."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, get_args

from fedpriv._collusion import DEFAULT_COLLUDING
from fedpriv._validate import require_choice, require_delta, require_non_negative
from fedpriv.secagg import Parameters

Level = Literal["off", "semi-honest", "active"]
LEVELS: tuple[Level, ...] = get_args(Level)


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """The secure aggregation that one participant requires.

    Server and parties each hold their own. If they differ, neither verifies the other's signatures:
    a server cannot lower a party's protection.

    Attributes:
        level: "off": answers travel in the clear, and the server is trusted with each of them;
            "semi-honest" and "active" are the modes of docs/secure-aggregation.md.
        corrupt: The largest fraction of the roster that colludes with the server. Unless this is 0,
            at least one of three or more parties is assumed to.
        dropout: The largest fraction of the roster that is missing, over all steps together; at
            least one party, where colluders leave room for it. This includes the key set-up of a
            round, which happens during the round before.
        least: The least number of answers in a sum, if that is more than the masks require.
    """

    level: Level = "semi-honest"
    corrupt: float = DEFAULT_COLLUDING
    dropout: float = 0.1
    least: int = 0

    def __post_init__(self) -> None:
        require_choice(LEVELS, level=self.level)
        require_delta(corrupt=self.corrupt, dropout=self.dropout)
        require_non_negative(least=self.least)

    @property
    def masked(self) -> bool:
        """Whether the server sees sums only."""
        return self.level != "off"

    def parameters(
        self, parties: int, *, roster: int | None = None, minimum: int = 0
    ) -> Parameters:
        """The public numbers of a round with ``parties``, at least ``minimum`` of them in the sum.

        Args:
            parties: How many are invited.
            roster: The size of the roster; if not given, all are invited. The server chooses whom
                to invite, so all corrupt parties of the roster may be among them.
            minimum: The minimum that the query requires.

        Raises:
            ValueError: No threshold is secure and live, or fewer parties are there than must be in
                the sum.
        """
        if not self.masked:
            raise ValueError("level must be 'semi-honest' or 'active' to mask answers, got 'off'.")
        planned = _planned(self.level, parties, roster, self.corrupt, self.dropout)
        return replace(planned, minimum=max(planned.minimum, minimum, self.least))


@lru_cache
def _planned(
    level: Level, parties: int, roster: int | None, corrupt: float, dropout: float
) -> Parameters:
    """Cached: for many parties the plan is a search, and every message of a party needs it."""
    return Parameters.plan(
        mode=level, parties=parties, roster=roster, corrupt=corrupt, dropout=dropout
    )
