"""The search that refutes a loss: no constant understated by 5 % gets by, and ours all do."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

import pytest
import torch
from torch import Tensor

from fedpriv.learning.loss_checks import LossRefuted, Task, require_not_refuted
from fedpriv.learning.losses import (
    HuberHinge,
    HuberRegression,
    Logistic,
    Loss,
    MarginLoss,
    Softmax,
    Squared,
)

OURS: list[tuple[Loss, Task]] = [
    (Logistic(), "binary"),
    (HuberHinge(smoothing=0.5), "binary"),
    (HuberHinge(smoothing=0.001), "binary"),
    (HuberRegression(threshold=1.0), "regression"),
    (HuberRegression(threshold=0.01), "regression"),
    (Softmax(classes=3), "multiclass"),
    (Softmax(classes=10), "multiclass"),
]
# Each takes seconds to search; of each kind one other stays.
LONG = [
    pytest.param(loss, task, id=str(loss), marks=[pytest.mark.deep] * (place in (1, 3, 6)))
    for place, (loss, task) in enumerate(OURS)
]


@pytest.mark.parametrize(("loss", "task"), LONG)
def test_the_losses_of_fedpriv_pass(loss: Loss, task: Task) -> None:
    require_not_refuted(loss, task=task)


class BalancedInLargeBatches(MarginLoss):
    """Weighs records by the labels beside them, if there are enough of these for a mean."""

    lipschitz, smoothness, domain_radius, slope_rounding = 1.0, 0.25, inf, 1e-15

    def _weight(self, y: Tensor) -> float:
        return 0.5 + 0.4 * float(y.double().mean()) if len(y) >= 32 else 1.0

    def value(self, score: Tensor, y: Tensor) -> Tensor:
        return self._weight(y) * Logistic().value(score, y)

    def slope(self, score: Tensor, y: Tensor) -> Tensor:
        return self._weight(y) * Logistic().slope(score, y)

    def curvature(self, score: Tensor, y: Tensor) -> Tensor:
        return self._weight(y) * Logistic().curvature(score, y)


def test_many_records_must_not_meet_where_few_do_not() -> None:
    with pytest.raises(LossRefuted, match="must be that of its records one by one"):
        require_not_refuted(BalancedInLargeBatches(), task="binary")


class Stated(Loss):
    """Another loss that declares what it is told to."""

    def __init__(self, loss: Loss, **stated: Any) -> None:
        self._loss, self._stated = loss, stated

    def _of(self, name: str) -> Any:
        return self._stated.get(name, getattr(self._loss, name))

    outputs = property(lambda self: self._of("outputs"))
    lipschitz = property(lambda self: self._of("lipschitz"))
    smoothness = property(lambda self: self._of("smoothness"))
    domain_radius = property(lambda self: self._of("domain_radius"))
    slope_rounding = property(lambda self: self._of("slope_rounding"))
    one_sided = property(lambda self: self._of("one_sided"))

    def check_labels(self, y: Tensor) -> None:
        self._loss.check_labels(y)

    def value(self, score: Tensor, y: Tensor) -> Tensor:
        return self._loss.value(score, y)

    def slope(self, score: Tensor, y: Tensor) -> Tensor:
        return self._loss.slope(score, y)

    def curvature(self, score: Tensor, y: Tensor) -> Tensor:
        return self._loss.curvature(score, y)


@pytest.mark.parametrize("constant", ["lipschitz", "smoothness"])
@pytest.mark.parametrize(("loss", "task"), LONG)
def test_a_constant_understated_by_5_percent_is_refuted(
    loss: Loss, task: Task, constant: str
) -> None:
    declared = getattr(loss, constant)
    require_not_refuted(Stated(loss, **{constant: 1.05 * declared}), task=task)
    with pytest.raises(LossRefuted, match=rf"{constant} is declared as .* at score .* is "):
        require_not_refuted(Stated(loss, **{constant: 0.95 * declared}), task=task, name="mine")


def test_a_slope_that_changes_its_sign_is_not_one_sided() -> None:
    """Objective perturbation would add too little noise."""
    assert {loss.one_sided for loss, task in OURS if task == "binary"} == {True}
    for threshold in (0.01, 1.0):
        loss = Stated(HuberRegression(threshold=threshold), one_sided=True)
        with pytest.raises(LossRefuted, match="one_sided is declared"):
            require_not_refuted(loss, task="regression")
    lifted = Lifted(1e-3)
    require_not_refuted(lifted, task="binary")  # it says nothing
    with pytest.raises(LossRefuted, match="one_sided is declared"):
        require_not_refuted(Stated(lifted, one_sided=True), task="binary")


class Lifted(MarginLoss):
    """The logistic loss and a gentle rise, so that it grows where the margin is large."""

    def __init__(self, rise: float) -> None:
        self._rise, self._loss = rise, Logistic()

    @property
    def slope_rounding(self) -> float:
        return 1e-15

    @property
    def lipschitz(self) -> float:
        return 1.0

    @property
    def smoothness(self) -> float:
        return 0.25

    @property
    def domain_radius(self) -> float:
        return inf

    def value(self, score: Tensor, y: Tensor) -> Tensor:
        return self._loss.value(score, y) + self._rise * y * score

    def slope(self, score: Tensor, y: Tensor) -> Tensor:
        return self._loss.slope(score, y) + self._rise * y

    def curvature(self, score: Tensor, y: Tensor) -> Tensor:
        return self._loss.curvature(score, y)


class Bent(MarginLoss):
    """The logistic loss and a small wave, which hides its bend from ``curvature`` if told to.

    With a wave of height h the slope is off by h at most and falls where the logistic slope is
    flat: not convex, whatever h is.
    """

    def __init__(self, height: float, *, honest: bool = True) -> None:
        self._height, self._honest, self._loss = height, honest, Logistic()

    @property
    def lipschitz(self) -> float:
        return 1.0 + self._height

    @property
    def smoothness(self) -> float:
        return 0.25 + self._height

    @property
    def domain_radius(self) -> float:
        return inf

    def value(self, score: Tensor, y: Tensor) -> Tensor:
        return self._loss.value(score, y) - self._height * torch.cos(score)

    def slope(self, score: Tensor, y: Tensor) -> Tensor:
        return self._loss.slope(score, y) + self._height * torch.sin(score)

    def curvature(self, score: Tensor, y: Tensor) -> Tensor:
        wave = self._height * torch.cos(score) if self._honest else 0.0
        return self._loss.curvature(score, y) + wave


@pytest.mark.parametrize("honest", [True, False])
def test_a_loss_that_is_not_convex_is_refuted(honest: bool) -> None:
    with pytest.raises(LossRefuted, match=r"must be convex, and at score .* minus .* is 0\.0"):
        require_not_refuted(Bent(0.0125, honest=honest), task="binary")  # 5 % of the curvature


def test_a_hidden_bend_is_found_in_the_slopes() -> None:
    """Smoothness is what slopes do, whatever ``curvature`` says."""
    bent = Bent(0.0125, honest=False)
    bare = Stated(bent, smoothness=0.25)
    with pytest.raises(LossRefuted, match=r"smoothness is declared as 0.25.*quotient of slopes"):
        require_not_refuted(bare, task="binary")


class Changed(Stated):
    """The logistic loss with one of its methods replaced."""

    def __init__(self, **methods: Any) -> None:
        super().__init__(Logistic())
        for name, method in methods.items():
            setattr(self, name, method)


def centred(score: Tensor, y: Tensor) -> Tensor:
    return Logistic().slope(score - score.mean(), y)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (Changed(slope=centred), "slope of a batch must be that of its records one by one"),
        (
            Changed(slope=lambda s, y: 0.95 * Logistic().slope(s, y)),
            "slope must be the derivative of value, and at score",
        ),
        (Changed(slope=lambda s, y: torch.full_like(s, torch.nan)), "slope"),
        (
            Changed(value=lambda s, y: 2 * Logistic().value(s, y)),
            "slope must be the derivative of value, and at score",
        ),
        (Stated(Logistic(), outputs=2), "value must take scores of shape"),
        (Stated(Logistic(), lipschitz=inf), "lipschitz must be positive and finite"),
        (Stated(Logistic(), domain_radius=3.0), "domain_radius must be infinite"),
    ],
)
def test_what_is_no_loss_of_one_record_is_refuted(loss: Loss, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        require_not_refuted(loss, task="binary")


def test_a_squared_loss_is_refuted_unless_it_levels_off() -> None:
    with pytest.raises(LossRefuted, match="domain_radius"):
        require_not_refuted(Squared(radius=3.0, label_bound=1.0), task="regression")
    squared = Stated(Squared(radius=3.0, label_bound=1e3), domain_radius=inf)
    with pytest.raises(LossRefuted, match=r"lipschitz is declared as 1003.* level off"):
        require_not_refuted(squared, task="regression")


def test_a_derived_bound_cannot_be_replaced() -> None:
    class Mine(Stated):
        def lipschitz_for(self, feature_bound: float) -> float:
            return 0.1

    with pytest.raises(LossRefuted, match="lipschitz_for must not be overridden"):
        require_not_refuted(Mine(Logistic()), task="binary")


def test_cancellation_that_is_not_declared_is_refuted() -> None:
    def lossy(score: Tensor, y: Tensor) -> Tensor:
        return (Logistic().slope(score, y) + 100) - 100

    changed = Changed(slope=lossy)
    with pytest.raises(LossRefuted, match=r"slope_rounding is declared as 0, .* is \d"):
        require_not_refuted(changed, task="binary")
    changed._stated["slope_rounding"] = 1e-13
    require_not_refuted(changed, task="binary")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spy(HuberHinge):
    """Counts nothing, changes nothing."""


def test_the_search_is_the_same_every_time_and_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    messages = set()
    for _ in range(2):
        with pytest.raises(LossRefuted) as refused:
            require_not_refuted(Stated(Spy(smoothing=0.5), smoothness=0.9), task="binary")
        messages.add(str(refused.value))
    assert len(messages) == 1
    assert torch.equal(torch.get_rng_state(), before)
