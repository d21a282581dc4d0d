"""Choice of a ledger's composition rule, which its owner fixes when creating it."""

from __future__ import annotations

from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any

from fedpriv._validate import require_choice
from fedpriv.privacy.accountants import UnsupportedEvent
from fedpriv.privacy.accountants.rdp import DEFAULT_ORDERS
from fedpriv.privacy.events import ApproximateEvent
from fedpriv.privacy.ledger.composition import (
    BasicComposition,
    Composition,
    Cost,
    GdpComposition,
    RdpComposition,
    is_exact,
)
from fedpriv.privacy.ledger.reservations import merged
from fedpriv.privacy.planning.filters import RdpFilter
from fedpriv.privacy.unit import DEFAULT_UNIT, Unit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fedpriv.privacy.adjacency import Adjacency
    from fedpriv.privacy.budget import Budget
    from fedpriv.privacy.events import Event
    from fedpriv.privacy.ledger.composition import Block

AUTO = "auto"
COMPOSITIONS: dict[str, type[Composition]] = {
    rule.name: rule for rule in (GdpComposition, BasicComposition, RdpComposition)
}
_LARGE_ORDERS = tuple(2.0**power for power in range(11, 24))  # for budgets far below epsilon = 0.1


def default_composition(budget: Budget) -> str:
    """The default rule of a ledger; it follows from the budget alone.

    No rule is best for everything, and none can be exchanged later: a rule chosen after seeing
    some releases is no filter. ``gdp`` is exact for what most runs release, Gaussian noise on full
    batches, so that a run planned for the whole budget fits it; ``rdp`` also prices sampled rounds
    and shares, and needs about 7 % more noise for Gaussian ones.
    """
    return GdpComposition.name if budget.delta > 0 else BasicComposition.name


def deployed_composition(budget: Budget) -> str:
    """The default rule of the ledger of a federation, or of one of its parties.

    It pays for many runs, and the first must not rule out the next: ``rdp`` is the only rule that
    prices Gaussian noise at the server, shares of noise at the parties and sampled rounds release
    by release. Compared with the exact rule of each that is 5 to 8 % more noise for a run that
    fills the whole budget; runs that leave some of it see no difference in their noise.
    """
    return RdpComposition.name if budget.delta > 0 else BasicComposition.name


def fixed_composition(
    composition: str, *, budget: Budget, adjacency: Adjacency, unit: Unit = DEFAULT_UNIT
) -> Composition | None:
    """The rule that ``composition`` names, before any release; None for ``auto``.

    ``rdp`` has one order for life. ``rdp:16`` names it; otherwise it is the one that admits most
    Gaussian releases, whatever their noise: D_α is then proportional to α, so that B(α)/α decides.
    """
    name, colon, text = composition.partition(":")
    require_composition(name, budget)
    if colon and name != RdpComposition.name:
        raise ValueError(f"composition {name!r} has no order: got {composition!r}.")
    if name == AUTO:
        return None
    if name != RdpComposition.name:
        return COMPOSITIONS[name](budget=budget, adjacency=adjacency, unit=unit)
    order = _order(composition, text) if colon else _best_for_gaussians(budget, adjacency)
    rule = RdpComposition(budget=budget, adjacency=adjacency, unit=unit, order=order)
    if not rule.limit() > 0:
        raise ValueError(
            f"composition {composition!r} admits nothing within {budget}: at this order no "
            "divergence converts to so small an epsilon. Choose a larger order."
        )
    return rule


def _order(composition: str, text: str) -> float:
    try:
        order = float(text)
    except ValueError:
        order = 0.0
    if not 1 < order < inf:
        raise ValueError(
            f"composition must be 'rdp', or 'rdp:' and a finite order above 1, as in 'rdp:16'; got "
            f"{composition!r}."
        )
    return order


def _best_for_gaussians(budget: Budget, adjacency: Adjacency) -> float:
    """Among the orders used for plans, so that a plan by Rényi divergences fits."""

    def admitted(order: float) -> float:
        return RdpFilter(budget=budget, adjacency=adjacency, order=order).limit / order

    return max((*DEFAULT_ORDERS, *_LARGE_ORDERS), key=admitted)


def fitting_composition(
    releases: Iterable[tuple[Event, int]],
    *,
    delta: float | None,
    budget: Budget,
    adjacency: Adjacency,
    unit: Unit = DEFAULT_UNIT,
) -> str:
    """The first rule by which a run of these releases fits a new ledger: exact ones first.

    For an owner who creates a ledger for one run, before its first release. If no rule fits, the
    default.
    """
    block = merged(releases)
    for name in (GdpComposition.name, BasicComposition.name):
        if name == GdpComposition.name and budget.delta == 0:
            continue
        rule = COMPOSITIONS[name](budget=budget, adjacency=adjacency, unit=unit)
        with suppress(UnsupportedEvent):
            if rule.admits(rule.price_block(block, delta=delta, spent=Cost())):
                return name
    return default_composition(budget)


def choose_composition(
    setting: str,
    block: Block,
    *,
    declared: bool,
    budget: Budget,
    adjacency: Adjacency,
    unit: Unit = DEFAULT_UNIT,
) -> Composition:
    """The rule of a ledger created without one, from the first releases that it charges.

    This is a ledger of ``auto``, or of an earlier version. Sound, because nothing was released
    before; but the first request decides for all later ones.
    """
    name = _fitting_rule(block, declared, budget) if setting == AUTO else setting
    if name != RdpComposition.name:
        return COMPOSITIONS[name](budget=budget, adjacency=adjacency, unit=unit)
    try:
        order = RdpFilter.for_releases(budget=budget, event=block[0][0]).order
    except ArithmeticError:
        raise UnsupportedEvent(
            f"rdp composition cannot choose an order for {block[0][0]}: its divergence is beyond "
            "the range of floats."
        ) from None
    return RdpComposition(budget=budget, adjacency=adjacency, unit=unit, order=order)


def _fitting_rule(block: Block, declared: bool, budget: Budget) -> str:
    if budget.delta == 0:
        return BasicComposition.name
    if is_exact(block):
        return GdpComposition.name
    pairs = any(isinstance(event, ApproximateEvent) for event, _ in block)
    return BasicComposition.name if declared or pairs else RdpComposition.name


def composition_from_dict(
    values: dict[str, Any], *, budget: Budget, adjacency: Adjacency, unit: Unit = DEFAULT_UNIT
) -> Composition:
    """Read back what `Composition.to_dict` wrote."""
    rest = {name: value for name, value in values.items() if name != "mode"}
    return COMPOSITIONS[values["mode"]](budget=budget, adjacency=adjacency, unit=unit, **rest)


def require_composition(setting: str, budget: Budget) -> None:
    """Refuse an unknown composition, and one that can admit nothing at δ = 0."""
    require_choice([AUTO, *COMPOSITIONS], composition=setting)
    if budget.delta == 0 and setting in (GdpComposition.name, RdpComposition.name):
        raise ValueError(
            f"composition must be basic (or auto) when delta is 0, got {setting!r}: it has no "
            "guarantee without a failure probability."
        )
