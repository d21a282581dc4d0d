"""Forms of a guarantee beside (ε, δ): μ-GDP, ρ-zCDP and an attacker's advantage, recomputed.

A statement says them for readers who compare runs by them. They follow from the releases as ε does,
and so does a number that is too small to be true.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Any

from fedpriv.privacy.accountants import GdpAccountant, UnsupportedEvent, ZcdpAccountant
from fedpriv.privacy.tradeoff import attack_advantage, gaussian_attack_advantage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedpriv.privacy.ledger.composition import Block

UNIT = "one record"


def understated(guarantee: Mapping[str, Any], releases: Block, *, slack: float) -> str:
    """What a written guarantee states too favourably, in a sentence; empty if nothing.

    A form that it leaves out is no lie, nor is a larger number than the releases cost.

    Args:
        guarantee: The table of a statement; its ε was checked.
        releases: What it is about, all under one adjacency.
        slack: How far numbers of two machines may differ, relatively.
    """
    if guarantee["unit"] != UNIT:
        return f"it is about {guarantee['unit']!r}, and releases are accounted for {UNIT}."
    adjacency = releases[0][0].adjacency
    square = _composed(GdpAccountant(adjacency=adjacency), releases)
    told = guarantee["gdp_mu"]
    least = {
        "gdp_mu": None if square is None else sqrt(square),
        "zcdp_rho": _composed(ZcdpAccountant(adjacency=adjacency), releases),
        "attack_advantage": (
            attack_advantage(epsilon=guarantee["epsilon"], delta=guarantee["delta"])
            if told is None
            else gaussian_attack_advantage(mu=told)
        ),
        "delta_times_records": guarantee["delta"] * guarantee["records"],
    }
    for name, found in least.items():
        stated = guarantee[name]
        if stated is not None and (found is None or not stated >= found * (1 - slack)):
            return f"{name} is stated as {stated!r}, and is {found!r}."
    return ""


def _composed(accountant: GdpAccountant | ZcdpAccountant, releases: Block) -> float | None:
    """All releases together, in the unit of an accountant; None where it has no price for one."""
    try:
        return accountant.compose_all(releases).total
    except UnsupportedEvent:
        return None
