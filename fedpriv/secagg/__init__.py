"""Secure aggregation: the server learns the sum of the parties' answers, and nothing else.

No I/O, no clock, no global randomness: `Party` and `Server` are pure state machines over frozen
messages. docs/secure-aggregation.md states what holds against whom. Start with `thresholds` (how
many must answer, may collude, may be missing) and `round`, then `party` and `server`. `rules` and
`screening` hold what party and server refuse; `recovery` opens the sum.
"""

from fedpriv.secagg.errors import SecureAggregationError
from fedpriv.secagg.numbers.fixed_point import FixedPoint
from fedpriv.secagg.party import Party
from fedpriv.secagg.party_state import Enrolled
from fedpriv.secagg.round import Round
from fedpriv.secagg.server import Server
from fedpriv.secagg.server_state import Total
from fedpriv.secagg.thresholds import Mode, Parameters

__all__ = [
    "Enrolled",
    "FixedPoint",
    "Mode",
    "Parameters",
    "Party",
    "Round",
    "SecureAggregationError",
    "Server",
    "Total",
]
