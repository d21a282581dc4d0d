"""Loss checks: a search for scores at which a loss breaks the constants that it declares.

Output and objective perturbation calibrate their noise to constants of the loss: the gradient bound
G, the smoothness c, convexity, one score per record. fedpriv's own losses are proved and tested;
those of a user's own are declared. Here a search tries to refute these declarations. **It can
refute but not prove**: a loss that passes is "declared by its author and not refuted", and a
statement says so. Clipped gradients rely on none of the constants, but on one property: a record's
slope depends only on its own score and label. They get it by vmap, which is tried here, too.

The search is deterministic. Scores are drawn over twelve orders of magnitude, near zero and far
out; from the worst of them it climbs, by the gradient where there is one and by random steps of all
sizes where there is none (`_climb`). All constants are looked at as quotients of slopes, not only
in the loss's own ``curvature``, which could hide a bend.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from math import inf, isinf
from typing import TYPE_CHECKING, Literal, NoReturn, cast

import torch
from torch import Tensor

from fedpriv._validate import require_count, require_positive
from fedpriv.learning.clipping.isolation import slopes_one_by_one, values_one_by_one
from fedpriv.learning.losses import Loss
from fedpriv.learning.threads import one_thread

if TYPE_CHECKING:
    from collections.abc import Callable

Task = Literal["binary", "multiclass", "regression"]

_DRAWS = 20_000
_CLIMBERS = 64
_STEPS = 120
_TRIES = 8  # random steps of each climber at a time
_SLACK = 1e-6  # relative: quotients of slopes are rounded
_LARGEST = 1e6
_BATCH = 7
_TINY = 1e-37  # about the smallest float32
_APART = {"slope": slopes_one_by_one, "value": values_one_by_one}
_BY_VMAP = ", by torch.func.vmap (no `if` or .item() of a score: use torch.where),"
_SEALED = ("lipschitz_for", "smoothness_for", "minimiser_radius")

BUDGET = _DRAWS + _CLIMBERS * _STEPS * (_TRIES + 1)
"""How many points are looked at for each constant."""


class LossRefuted(ValueError):
    """A loss declares what does not hold: which constant, at which score, and what was found."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Points:
    """Pairs of scores with a label each: (n, k), (n, k) and (n,)."""

    score: Tensor
    other: Tensor
    label: Tensor

    def __getitem__(self, rows: Tensor) -> _Points:
        return _Points(score=self.score[rows], other=self.other[rows], label=self.label[rows])


def require_not_refuted(loss: Loss, *, task: Task, name: str = "", seed: int = 0) -> None:
    """Refuse a loss whose declared constants a search refutes.

    Args:
        loss: Of a user's own.
        task: What its labels are.
        name: What to call it in an error.
        seed: Of the search.

    Raises:
        LossRefuted: Names the constant, the score, and what was found there.
    """
    with one_thread():
        search = _Search(loss, task, name or type(loss).__name__, seed)
        search.declared()
        search.record_wise()
        search.derivatives()
        search.constants()
        search.rounding()


class _Search:
    """One search; every method looks for one kind of contradiction."""

    def __init__(self, loss: Loss, task: Task, name: str, seed: int) -> None:
        self._loss, self._name = loss, name
        self._generator = torch.Generator().manual_seed(seed)
        self._points = self._draw(task)

    def declared(self) -> None:
        """The constants must be numbers, and the derived ones fedpriv's own."""
        loss = self._loss
        require_count(outputs=loss.outputs)
        require_positive(lipschitz=loss.lipschitz, smoothness=loss.smoothness)
        if not isinf(loss.domain_radius):
            self._refuse(
                f"domain_radius must be infinite, got {loss.domain_radius:g}: only a loss that is "
                "Lipschitz everywhere is taken from outside. Let its slope level off, as Huber's."
            )
        if deepcopy(loss) is loss:
            self._refuse("copy.deepcopy must copy it: a loss must keep nothing between two calls.")
        for key in _SEALED:
            if getattr(type(loss), key) is not getattr(Loss, key):
                self._refuse(f"{key} must not be overridden: it follows from the constants.")

    def record_wise(self) -> None:
        """A record's loss must not depend on other records in the batch, few or many."""
        few = self._points[torch.arange(_BATCH)]
        for key in ("value", "slope", "curvature"):
            together = self._called(key, few)
            alone = [self._called(key, few[torch.tensor([i])]) for i in range(_BATCH)]
            many = together if key == "curvature" else self._called(key, self._points)[:_BATCH]
            apart = self._called(key, few, apart=True) if key in _APART else together
            if together.shape[:1] != (_BATCH,) or not all(
                torch.allclose(found, torch.cat(alone), rtol=1e-9, atol=1e-12)
                for found in (together, many, apart)
            ):
                self._refuse(
                    f"{key} of a batch must be that of its records one by one: what others are in "
                    "the batch must not matter, or no clipping bounds a record."
                )
        if self._called("slope", few).shape != self._shaped(few.score).shape:
            self._refuse(f"slope must have one number per score, outputs = {self._loss.outputs}.")

    def _called(self, key: str, points: _Points, *, apart: bool = False) -> Tensor:
        call = partial(_APART[key], self._loss) if apart else getattr(self._loss, key)
        try:
            found: Tensor = call(self._shaped(points.score), points.label)
        except (RuntimeError, IndexError) as error:
            self._refuse(
                f"{key}{_BY_VMAP * apart} must take scores of shape "
                f"{tuple(self._shaped(points.score).shape)}, as outputs = {self._loss.outputs} "
                "says, and labels of shape "
                f"{tuple(points.label.shape)}: {error}"
            )
        return found

    def derivatives(self) -> None:
        """``slope`` must be the derivative of ``value``, or neither constant is about the loss."""
        points = self._points
        score = points.score.clone().requires_grad_()
        values = self._loss.value(self._shaped(score), points.label)
        (true,) = torch.autograd.grad(values.sum(), score)
        off = (true - self._slope(points.score, points.label)).norm(dim=1)
        rule, bound = "slope must be the derivative of value", 1e-6 * self._loss.lipschitz
        self._require(rule, off, bound, points, "the difference")

    def constants(self) -> None:
        """Gradient bound, smoothness and convexity, at the worst points that a climb finds."""
        loss, convex = self._loss, "the loss must be convex"
        lipschitz = f"lipschitz is declared as {loss.lipschitz:.6g}"
        smooth = f"smoothness is declared as {loss.smoothness:.6g}"
        found, worst = self._climb(lambda p: self._slope(p.score, p.label).norm(dim=1))
        level = (
            " Declare what bounds it; if nothing does, let the slope level off, as Huber's does."
        )
        self._require(lipschitz, found, loss.lipschitz, worst, "the size of slope", level)
        steep = " Declare what bounds the second derivative at every score."
        found, worst = self._climb(self._secant)
        self._require(smooth, found, loss.smoothness, worst, "a quotient of slopes", steep)
        found, worst = self._climb(lambda p: self._eigenvalues(p)[:, -1])
        self._require(smooth, found, loss.smoothness, worst, "the curvature", steep)
        found, worst = self._climb(lambda p: -self._monotone(p))
        self._require(convex, found, 1e-9 * loss.smoothness, worst, "minus a quotient of slopes")
        if loss.one_sided:
            found, worst = self._climb(self._both_signs)
            rule = "one_sided is declared, and slopes of a label must have one sign"
            self._require(rule, found, 1e-9 * loss.lipschitz, worst, "one of both")
        found, worst = self._climb(lambda p: -self._eigenvalues(p)[:, 0])
        self._require(convex, found, 1e-9 * loss.smoothness, worst, "minus the curvature")

    def rounding(self) -> None:
        """``slope_rounding``, read off float32, where the same formula errs 2²⁹ times as much."""
        points = self._points
        score, label = points.score.float(), points.label
        label = label.float() if label.is_floating_point() else label
        exact = self._slope(score.double(), label)
        rough = self._slope(score, label).double()
        unit = torch.finfo(torch.float32).eps / 2
        beyond = (rough - exact).norm(dim=1) - 8 * unit * exact.norm(dim=1) - _TINY
        found = beyond / 2.0**29
        self._require(
            f"slope_rounding is declared as {self._loss.slope_rounding:.6g}",
            found,
            self._loss.slope_rounding,
            points,
            "the rounding of a slope in float64, read off float32,",
            remedy=f" Declare {4 * float(found.max()):.0e}, or form no difference of near numbers.",
        )

    def _require(
        self,
        rule: str,
        found: Tensor,
        bound: float,
        points: _Points,
        what: str,
        remedy: str = "",
    ) -> None:
        """Refuse by ``rule`` where something was found beyond its bound, or is no number."""
        place = int(found.nan_to_num(nan=inf).argmax())
        value = float(found[place])
        if not value <= bound * (1 + _SLACK):
            score = [float(f"{number:.6g}") for number in points.score[place]]
            shown = score[0] if len(score) == 1 else score
            self._refuse(
                f"{rule}, and at score {shown}, label {float(points.label[place]):g}, {what} is "
                f"{value:.6g}.{remedy}"
            )

    def _refuse(self, reason: str) -> NoReturn:
        raise LossRefuted(f"the loss {self._name} is refused: {reason}")

    # What is looked at, for pairs of scores.

    def _slope(self, score: Tensor, label: Tensor) -> Tensor:
        return self._loss.slope(self._shaped(score), label).reshape(score.shape)

    def _secant(self, points: _Points) -> Tensor:
        """‖slope(a) − slope(b)‖ / ‖a − b‖, of points apart by more than rounding."""
        apart = (points.score - points.other).norm(dim=1)
        sizes = points.score.norm(dim=1) + points.other.norm(dim=1)
        change = self._slope(points.score, points.label) - self._slope(points.other, points.label)
        enough = apart > 1e-7 * (1 + sizes)
        return torch.where(enough, change.norm(dim=1) / apart.clamp(min=1e-300), 0.0)

    def _monotone(self, points: _Points) -> Tensor:
        """(slope(a) − slope(b))·(a − b) / ‖a − b‖²: at least 0 if the loss is convex."""
        gap = points.score - points.other
        change = self._slope(points.score, points.label) - self._slope(points.other, points.label)
        sizes = points.score.norm(dim=1) + points.other.norm(dim=1)
        enough = gap.norm(dim=1) > 1e-7 * (1 + sizes)
        quotient = (change * gap).sum(1) / gap.square().sum(1).clamp(min=1e-300)
        return torch.where(enough, quotient, 0.0)

    def _both_signs(self, points: _Points) -> Tensor:
        """min(slope(a), -slope(b)): positive if the slopes of one label have both signs."""
        one, other = (self._slope(s, points.label) for s in (points.score, points.other))
        first, second = torch.minimum(one, -other), torch.minimum(-one, other)
        return torch.maximum(first, second).amax(1)

    def _eigenvalues(self, points: _Points) -> Tensor:
        """Of the loss's own second derivative, ascending, (n, k)."""
        curvature = self._loss.curvature(self._shaped(points.score), points.label)
        if self._loss.outputs == 1:
            return curvature.reshape(-1, 1)
        return cast("Tensor", torch.linalg.eigvalsh(curvature))

    def _shaped(self, score: Tensor) -> Tensor:
        """One score per record is a vector of them."""
        return score.squeeze(1) if self._loss.outputs == 1 else score

    # The search.

    def _draw(self, task: Task) -> _Points:
        """Scores of all sizes and signs, and for each a second one, at all distances."""
        k = self._loss.outputs
        score = 10 ** (self._uniform(_DRAWS, 1) * 12 - 6) * self._normal(_DRAWS, k)
        other = score + 10 ** (self._uniform(_DRAWS, 1) * 12 - 6) * self._normal(_DRAWS, k)
        return _Points(score=score, other=other, label=self._labels(task))

    def _labels(self, task: Task) -> Tensor:
        """Labels of the task: real ones from [-1, 1], to which tables are scaled; and wider.

        A quarter is -1, 0 or 1: a label that is clamped to the end of its range is just there, and
        a loss may treat that as another case. A quarter is over as wide a range as the loss takes.
        """
        if task == "binary":
            return torch.where(self._uniform(_DRAWS) < 0.5, -1.0, 1.0)
        if task == "multiclass":
            return torch.randint(self._loss.outputs, (_DRAWS,), generator=self._generator)
        drawn = 2 * self._uniform(_DRAWS) - 1
        drawn[::4] = drawn[::4].mul(1.5).round()  # -1, 0 and 1 as often
        for width in (1e3, 1e1):
            try:
                self._loss.check_labels(width * drawn)
            except ValueError:
                continue
            drawn[1::4] *= width
            break
        return drawn

    def _climb(self, wanted: Callable[[_Points], Tensor]) -> tuple[Tensor, _Points]:
        """The points where ``wanted`` is largest, after a climb from the largest of all draws."""
        with torch.no_grad():
            best = wanted(self._points).nan_to_num(nan=inf).topk(_CLIMBERS)
        points, heights = self._points[best.indices], best.values
        for _ in range(_STEPS):
            tried = self._neighbours(points, wanted)
            with torch.no_grad():
                found = wanted(tried).nan_to_num(nan=inf).reshape(_TRIES + 1, -1)
            top = found.max(0)
            better = top.values > heights
            chosen = tried[top.indices * _CLIMBERS + torch.arange(_CLIMBERS)]
            points = _Points(
                score=torch.where(better[:, None], chosen.score, points.score),
                other=torch.where(better[:, None], chosen.other, points.other),
                label=points.label,
            )
            heights = torch.maximum(heights, top.values)
        return heights, points

    def _neighbours(self, points: _Points, wanted: Callable[[_Points], Tensor]) -> _Points:
        """Random steps of all sizes, and one along the gradient, of every climber."""
        moves = [self._ascent(points, wanted)]
        for _ in range(_TRIES):
            reach = points.score.norm(dim=1, keepdim=True) + 1
            shift = reach * 10 ** (-8 * self._uniform(_CLIMBERS, 1)) * self._normal_like(points)
            keep = self._uniform(_CLIMBERS, 1)
            gap = points.other - points.score
            # Move one end, or both, or draw them together: a steep bend shows between near points.
            score = torch.where(keep < 0.7, points.score + shift, points.score)
            other = torch.where(keep < 0.35, score + gap, points.other)
            other = torch.where(keep > 0.85, score + gap * self._uniform(_CLIMBERS, 1), other)
            moves.append(_Points(score=score, other=other, label=points.label))
        return _Points(
            score=torch.cat([move.score for move in moves]).clamp(-_LARGEST, _LARGEST),
            other=torch.cat([move.other for move in moves]).clamp(-_LARGEST, _LARGEST),
            label=torch.cat([move.label for move in moves]),
        )

    def _ascent(self, points: _Points, wanted: Callable[[_Points], Tensor]) -> _Points:
        """A step along the gradient, of random length; none where there is no gradient."""
        score = points.score.clone().requires_grad_()
        found = wanted(_Points(score=score, other=points.other, label=points.label)).sum()
        if not found.requires_grad:
            return points
        (slope,) = torch.autograd.grad(found, score, materialize_grads=True)
        direction = slope.nan_to_num() / slope.norm(dim=1, keepdim=True).clamp(min=1e-300)
        reach = points.score.norm(dim=1, keepdim=True) + 1
        length = reach * 10 ** (2 - 8 * self._uniform(_CLIMBERS, 1))
        moved = points.score + length * direction.nan_to_num()
        return _Points(score=moved, other=points.other, label=points.label)

    def _uniform(self, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self._generator, dtype=torch.float64)

    def _normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self._generator, dtype=torch.float64)

    def _normal_like(self, points: _Points) -> Tensor:
        return self._normal(*points.score.shape)
