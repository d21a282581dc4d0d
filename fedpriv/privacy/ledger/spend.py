"""What was spent, what is left, and the refusal of releases that do not fit. Pure values."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from math import isfinite, sqrt
from typing import TYPE_CHECKING, Any

from fedpriv.privacy.budget import BudgetExceeded
from fedpriv.privacy.conversions import PrivacyLoss
from fedpriv.privacy.ledger.composition import GdpComposition

if TYPE_CHECKING:
    from fedpriv.privacy.budget import Budget
    from fedpriv.privacy.events import Event
    from fedpriv.privacy.ledger.composition import Composition, Cost

# Which number of an event makes it cheaper, and whether by growing (+1) or by shrinking (-1).
_DIALS = {"relative_noise": 1, "variance": 1, "share_stddev": 1, "epsilon": -1, "rho": -1}
_LARGEST_FACTOR = 2.0**40
_PRECISION = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What is left of a budget.

    Attributes:
        epsilon: by how much ε may still grow.
        delta: what is left of δ for declared blocks.
        amount: what is left in the composition's measure; zero until a rule is fixed.
        share: the same as a fraction of the whole: 1 when nothing is spent.
    """

    epsilon: float
    delta: float
    amount: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Spend:
    """What a ledger has spent of its budget.

    Attributes:
        budget: of the data set.
        composition: the rule by which it adds up; None before the first charge.
        total: in what the rule adds up, and of δ directly.
    """

    budget: Budget
    composition: Composition | None
    total: Cost

    @property
    def guarantee(self) -> PrivacyLoss:
        """How much of the budget all releases of the ledger used; see `Composition.guarantee`."""
        if self.composition is None:
            return PrivacyLoss(epsilon=0.0, delta=0.0)
        return self.composition.guarantee(self.total)

    @property
    def mu(self) -> float | None:
        """The μ of Gaussian DP, where spend is all of that kind: in a gdp ledger without blocks."""
        gaussian = isinstance(self.composition, GdpComposition) and self.total.delta == 0
        return sqrt(self.total.amount) if gaussian else None

    @property
    def within_budget(self) -> bool:
        """True, unless somebody changed the file."""
        return self.composition is None or self.composition.admits(self.total)

    @property
    def left(self) -> Left:
        """What is left."""
        if self.composition is None:
            return Left(epsilon=self.budget.epsilon, delta=self.budget.delta, amount=0.0, share=1.0)
        limit = self.composition.limit()
        amount = max(0.0, limit - self.total.amount)
        return Left(
            epsilon=max(0.0, self.budget.epsilon - self.guarantee.epsilon),
            delta=max(0.0, self.budget.delta - self.total.delta),
            amount=amount,
            share=amount / limit if limit > 0 else 0.0,
        )

    def to_dict(self) -> dict[str, Any]:
        """What was spent and what is left, as JSON-ready values."""
        loss, rule = self.guarantee, self.composition
        return {
            "composition": None if rule is None else {**rule.to_dict(), "measure": rule.measure},
            "spent": {
                "epsilon": loss.epsilon if isfinite(loss.epsilon) else None,
                "delta": loss.delta,
                "mu": self.mu,
                "amount": self.total.amount,
            },
            "left": asdict(self.left),
        }

    def after(self, cost: Cost) -> Spend:
        """The spend after ``cost``, affordable or not."""
        return replace(self, total=self.total + cost)


class BudgetRefusal(BudgetExceeded):
    """A ledger refused a release or a declared block. Nothing was computed or charged.

    Attributes:
        spent: before the request.
        asked: the spend that the request would have led to.
        left: of the budget.
        fits: the same release with just enough noise, or None if none would fit.
    """

    def __init__(self, what: str, *, spent: Spend, asked: Spend, fits: Event | None) -> None:
        self.spent = spent
        self.asked = asked
        self.left = spent.left
        self.fits = fits
        budget, loss = spent.budget, asked.guarantee
        remedy = (
            f"{_describe(fits)} would fit."
            if fits
            else "Stop here, or plan less: fewer rounds or more noise."
        )
        super().__init__(
            f"{what} would spend epsilon = {loss.epsilon:.6g} of {budget.epsilon:g}, delta = "
            f"{loss.delta:.6g} of {budget.delta:g}; before it, epsilon = "
            f"{spent.guarantee.epsilon:.6g}. Nothing was released. {remedy}"
        )


def nearest_that_fits(spent: Spend, event: Event) -> Event | None:
    """``event``, which does not fit, with just enough more noise to fit; None if none is enough."""
    composition = spent.composition
    name = next((name for name in _DIALS if hasattr(event, name)), None)
    if composition is None or name is None:
        return None

    def quieter(factor: float) -> Event:
        return replace(event, **{name: getattr(event, name) * factor ** _DIALS[name]})

    def fits(factor: float) -> bool:
        return composition.admits(spent.total + composition.price(quieter(factor)))

    high = 2.0
    while not fits(high):
        high *= 2
        if high > _LARGEST_FACTOR:
            return None
    low = high / 2
    while high > low * (1 + _PRECISION):
        middle = sqrt(low * high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    return quieter(high)


def _describe(event: Event) -> str:
    name = next(name for name in _DIALS if hasattr(event, name))
    bound = "at least" if _DIALS[name] > 0 else "at most"
    return f"A {event.kind} release with {name} of {bound} {getattr(event, name)!r}"
