"""Forms of a guarantee beside (ε, δ): μ-GDP, ρ-zCDP and an attacker's advantage, recomputed.

A statement says them for readers who compare runs by them. They follow from the releases as ε does,
and so does a number that is too small to be true. Of noise that was chosen on the way they follow
from the limit of its filter: what was spent of it depends on what was seen, and no theorem says
that so much, and no more, is the μ of the run.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Any

from fedpriv.privacy.accountants import GdpAccountant, UnsupportedEvent, ZcdpAccountant
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.planning.filters import FILTERS, GdpFilter, fresh_filter
from fedpriv.privacy.tradeoff import attack_advantage, gaussian_attack_advantage
from fedpriv.privacy.unit import Unit, neighbours_in_words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedpriv.privacy.ledger.composition import Block


def understated(statement: Mapping[str, Any], releases: Block, *, slack: float) -> str:
    """What the guarantee of a statement says too favourably, in a sentence; empty if nothing.

    A form that it leaves out is no lie, nor is a larger number than the releases cost.

    Args:
        statement: As `Statement.to_dict` wrote it; its ε was checked.
        releases: What it is about, all under one adjacency and for one unit.
        slack: How far numbers of two machines may differ, relatively.
    """
    guarantee, plan = statement["guarantee"], statement["plan"]
    adjacency, unit = releases[0][0].adjacency, releases[0][0].unit
    if guarantee["neighbours"] != (words := neighbours_in_words(unit, adjacency)):
        return f"neighbours are stated to differ by {guarantee['neighbours']!r}, and do by {words}."
    if guarantee["records"] != plan["records"]:
        return "guarantee and plan state different numbers of records."
    square, rho = _squares(guarantee, releases)
    mu, count = guarantee["gdp_mu"], plan["parties" if unit is Unit.PARTY else "records"]
    least = {
        "gdp_mu": None if square is None else sqrt(square),
        "zcdp_rho": rho,
        "attack_advantage": (
            attack_advantage(epsilon=guarantee["epsilon"], delta=guarantee["delta"])
            if mu is None
            else gaussian_attack_advantage(mu=mu)
        ),
        "delta_times_units": guarantee["delta"] * count,
    }
    for name, found in least.items():
        stated = guarantee[name]
        if stated is not None and (found is None or not stated >= found * (1 - slack)):
            return f"{name} is stated as {stated!r}, and is {found!r}."
    return ""


def _squares(guarantee: Mapping[str, Any], releases: Block) -> tuple[float | None, float | None]:
    """μ² and ρ, of all releases or of the filter that admitted them; None where there is none."""
    adjacency, unit = releases[0][0].adjacency, releases[0][0].unit
    if guarantee["accountant"] not in FILTERS:
        return (
            _composed(GdpAccountant(adjacency=adjacency, unit=unit), releases),
            _composed(ZcdpAccountant(adjacency=adjacency, unit=unit), releases),
        )
    budget = Budget(epsilon=guarantee["epsilon"], delta=guarantee["delta"])
    fresh = fresh_filter(guarantee["accountant"], budget=budget, adjacency=adjacency, unit=unit)
    return (fresh.limit, fresh.limit / 2) if isinstance(fresh, GdpFilter) else (None, None)


def _composed(accountant: GdpAccountant | ZcdpAccountant, releases: Block) -> float | None:
    """All releases together, in the measure of an accountant; None if it has no price for one."""
    try:
        return accountant.compose_all(releases).total
    except UnsupportedEvent:
        return None
