"""The choice of an accountant, and a comparison of all of them."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite
from typing import TYPE_CHECKING

from fedpriv._validate import require_choice, require_delta
from fedpriv.privacy.accountants.base import UnsupportedEvent
from fedpriv.privacy.accountants.basic import AdvancedAccountant, BasicAccountant
from fedpriv.privacy.accountants.gdp import GdpAccountant
from fedpriv.privacy.accountants.pld import PldAccountant
from fedpriv.privacy.accountants.rdp import RdpAccountant
from fedpriv.privacy.accountants.tcdp import CtcdpAccountant, TcdpAccountant
from fedpriv.privacy.accountants.zcdp import SimpleZcdpAccountant, ZcdpAccountant
from fedpriv.privacy.events import TuningEvent
from fedpriv.privacy.planning.releases import on_levels

if TYPE_CHECKING:
    from fedpriv.privacy.accountants.base import Accountant
    from fedpriv.privacy.events import Event
    from fedpriv.privacy.planning.releases import Releases

ACCOUNTANTS: dict[str, type[Accountant]] = {
    accountant.name: accountant
    for accountant in (
        BasicAccountant,
        AdvancedAccountant,
        SimpleZcdpAccountant,
        ZcdpAccountant,
        TcdpAccountant,
        CtcdpAccountant,
        RdpAccountant,
        PldAccountant,
        GdpAccountant,
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One accountant's report on a run: an ε, or the reason why it has none."""

    accountant: str
    method: str
    epsilon: float | None
    reason: str | None = None


def best_accountant(releases: Releases, *, delta: float) -> type[Accountant]:
    """The tightest accountant that supports every event: exact, then numerical, then Rényi.

    The order follows from theorems, not from trials: exact GDP is an equivalence, a loss
    distribution dominates Rényi moments, and only sums of pure ε say anything at δ = 0.
    """
    candidates: list[type[Accountant]] = [BasicAccountant]
    if delta > 0:
        candidates = [GdpAccountant, PldAccountant, RdpAccountant, *candidates]
    for candidate in candidates:
        if all(_supports(candidate, event) for event, _ in releases):
            return candidate
    raise UnsupportedEvent("no accountant knows all of these events.")


def account(releases: Releases, *, delta: float, accountant: str = "auto") -> Report:
    """ε of ``releases`` at ``delta``, by the named accountant or the tightest sound one.

    A loss distribution is rounded up to a grid. For a few pure releases the sum of their ε can then
    be slightly smaller, which can decide whether a budget is kept. A paid tuning has two bounds,
    and adding up pairs of ε and δ usually gives the far smaller one.
    """
    require_delta(delta=delta)
    require_choice([*ACCOUNTANTS, "auto"], accountant=accountant)
    if not releases:
        raise ValueError("releases must name at least one event, got none.")
    if accountant != "auto":
        return _report(ACCOUNTANTS[accountant], releases, delta)
    report = _report(best_accountant(releases, delta=delta), releases, delta)
    if not all(_supports(BasicAccountant, event) for event, _ in releases):
        return report
    tuned = any(isinstance(event, TuningEvent) for event, _ in releases)
    # At δ = 0 it is finite for pure releases only.
    simple = _report(BasicAccountant, releases, delta if tuned else 0.0)
    epsilon = inf if report.epsilon is None else report.epsilon
    return simple if simple.epsilon is not None and simple.epsilon < epsilon else report


def _report(chosen: type[Accountant], releases: Releases, delta: float) -> Report:
    leveled = on_levels(releases, most=chosen.most_levels)
    composed = chosen(adjacency=releases[0][0].adjacency, unit=releases[0][0].unit).compose_all(
        leveled
    )
    epsilon = composed.epsilon(delta)
    if not isfinite(epsilon):
        return Report(
            accountant=chosen.name,
            method=chosen.method,
            epsilon=None,
            reason=f"no finite epsilon at delta = {delta:g}",
        )
    return Report(accountant=chosen.name, method=chosen.method, epsilon=epsilon)


def account_all(releases: Releases, *, delta: float) -> list[Report]:
    """The same run under every accountant; where one does not apply, its reason."""
    reports = []
    for name, kind in ACCOUNTANTS.items():
        try:
            reports.append(account(releases, delta=delta, accountant=name))
        except UnsupportedEvent as reason:
            reports.append(
                Report(accountant=name, method=kind.method, epsilon=None, reason=str(reason))
            )
    return reports


def _supports(kind: type[Accountant], event: Event) -> bool:
    try:
        kind(adjacency=event.adjacency, unit=event.unit).compose(event)
    except UnsupportedEvent:
        return False
    return True
