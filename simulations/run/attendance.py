"""Attendance: the least number of parties with which a run releases anything.

With fewer, it would be paid for and come to nothing. So a deployed run counts them first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv.federation.strategy.joint import JointStrategy
from fedpriv.privacy.mechanisms.shares import SharedNoise
from fedpriv.privacy.planning.fixed_plan import FixedPlan
from fedpriv.strategies.common.inference.linear_inference import LinearInference
from fedpriv.strategies.description import Description

if TYPE_CHECKING:
    from fedpriv.federation.strategy.base import SumStrategy


def needs_everybody(strategy: SumStrategy | None) -> bool:
    """Whether a sum that lacks one party is of no use: a fit of all records, parts by party."""
    by_party = isinstance(strategy, Description) and strategy.by_party
    return by_party or isinstance(strategy, JointStrategy | LinearInference)


def least_parties(strategy: SumStrategy | None) -> int:
    """The least number of parties without whom no release is made; 0 if the masks decide alone.

    All of them where everybody is needed, and those that the shares of noise are sized for.
    """
    if strategy is None:
        return 0
    if needs_everybody(strategy):
        return strategy.task.parties
    mechanisms = strategy.plan.mechanisms if isinstance(strategy.plan, FixedPlan) else ()
    shares = [each.share for each in mechanisms if isinstance(each, SharedNoise)]
    return max((share.minimum for share in shares), default=0)
