"""Which rule a ledger adds up by: its setting, or what its first charge needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedpriv._validate import require_choice
from fedpriv.privacy.accountants import UnsupportedEvent
from fedpriv.privacy.events import ApproximateEvent
from fedpriv.privacy.filters import RdpFilter
from fedpriv.privacy.ledger.composition import (
    BasicComposition,
    Composition,
    GdpComposition,
    RdpComposition,
    is_exact,
)

if TYPE_CHECKING:
    from fedpriv.privacy.adjacency import Adjacency
    from fedpriv.privacy.budget import Budget
    from fedpriv.privacy.ledger.composition import Block

AUTO = "auto"
COMPOSITIONS: dict[str, type[Composition]] = {
    rule.name: rule for rule in (GdpComposition, BasicComposition, RdpComposition)
}


def choose_composition(
    setting: str, block: Block, *, declared: bool, budget: Budget, adjacency: Adjacency
) -> Composition:
    """The rule of a ledger, from its setting and the first releases that it is to charge."""
    name = _fitting_rule(block, declared, budget) if setting == AUTO else setting
    if name != RdpComposition.name:
        return COMPOSITIONS[name](budget=budget, adjacency=adjacency)
    try:
        order = RdpFilter.for_releases(budget=budget, event=block[0][0]).order
    except ArithmeticError:
        raise UnsupportedEvent(
            f"rdp composition cannot choose an order for {block[0][0]}: its divergence is beyond "
            "the range of floats."
        ) from None
    return RdpComposition(budget=budget, adjacency=adjacency, order=order)


def _fitting_rule(block: Block, declared: bool, budget: Budget) -> str:
    if budget.delta == 0:
        return BasicComposition.name
    if is_exact(block):
        return GdpComposition.name
    pairs = any(isinstance(event, ApproximateEvent) for event, _ in block)
    return BasicComposition.name if declared or pairs else RdpComposition.name


def composition_from_dict(
    values: dict[str, Any], *, budget: Budget, adjacency: Adjacency
) -> Composition:
    """Read back what `Composition.to_dict` wrote."""
    rest = {name: value for name, value in values.items() if name != "mode"}
    return COMPOSITIONS[values["mode"]](budget=budget, adjacency=adjacency, **rest)


def require_composition(setting: str, budget: Budget) -> None:
    """Refuse an unknown composition, and one that can admit nothing at δ = 0."""
    require_choice([AUTO, *COMPOSITIONS], composition=setting)
    if budget.delta == 0 and setting in (GdpComposition.name, RdpComposition.name):
        raise ValueError(
            f"composition must be basic (or auto) when delta is 0, got {setting!r}: it has no "
            "guarantee without a failure probability."
        )
