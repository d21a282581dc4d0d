"""Canaries: the neighbouring tables that are easiest to tell apart, by kind of release.

A guarantee covers all tables and all records, so an audit may choose both, and should choose the
worst. The choice is a `Scene`: the records around a canary, and the canary itself on the first and
on the second neighbour. Which scene is worst for a release is found by measuring the exact shift of
each (`fedpriv.simulations.audit`), without noise, before any run that counts.

**Clipped sums.** A long record x against -x, or against x with another label: their gradients are
opposite, and each is clipped to C, so that the sum moves by 2C, or by C if one of them is absent.
Where the model learns, one of the two soon fits it, and its gradient is shorter than C: then
canaries that no model fits are worse, the nearly opposite ones below. Second moments see x and -x
alike, and are moved most by a record across. Where they are released with gradients, nearly
opposite records at 10° to 30° move both: moments by √2·sin 2a, gradients by 2·cos a.

**Minimisers.** 2G/(nλ) is reached by two records whose gradients are opposite *and* whose losses
are steep at the minimiser: both on the wrong side of it. So the others pull the minimiser along e₁,
to ‖θ‖ = R, and the canaries are (-sin a, ±cos a): nearly opposite, both with a margin of -R·sin a.
The others have no curvature along e₂, where the minimiser then moves by 2·slope·cos a/(nλ). A
logistic slope is 1/(1 + exp(-R·sin a)), and R is largest, √(0.2785/λ), if the others are r·e₁
with r·R = 1.278: 82 % of the bound at λ = 0.01, 95 % at 0.001, 59 % at 0.1.

**Perturbed objectives** depend on the difference of the gradients themselves, at the same
minimiser: the canaries are the same, and curvature does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import cos, radians, sin
from typing import TYPE_CHECKING

import numpy as np

from fedpriv._validate import require_count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

ANGLES = (5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 55.0, 90.0)
"""Of the canaries, in degrees, to choose from."""

LENGTHS = (0.03, 0.06, 0.12, 0.24, 0.5, 0.9)
"""Of the others, to choose from."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scene:
    """A canary and the records around it. Every row has at most the norm 1, in units of B.

    Attributes:
        name: For reports.
        rows: Of the others, float64 (n, features).
        positive: Of the others, bool (n,): which of two labels.
        canary: On the first neighbour, (features,).
        label: Of the canary on the first neighbour.
        instead: The record in its place on the second neighbour, unless it is absent there.
        other_label: Its label.
    """

    name: str
    rows: NDArray[np.float64]
    positive: NDArray[np.bool_]
    canary: NDArray[np.float64]
    label: bool
    instead: NDArray[np.float64]
    other_label: bool


def clipped_scenes(features: int, others: int, *, seed: int = 0) -> Iterator[Scene]:
    """Scenes for sums of clipped gradients, or of clipped updates: random others, a long canary."""
    require_count(features=features)
    rng = np.random.default_rng(seed)
    rows = _unit(rng.normal(size=(others, features)))
    positive = rng.random(others) < 0.5
    canary = _unit(rng.normal(size=(1, features)))[0]
    second = rng.normal(size=features)
    second -= (second @ canary) * canary
    across = second / max(float(np.linalg.norm(second)), 1e-300)  # nothing, with one feature
    scenes = (("turned", -canary, True), ("relabelled", canary, False), ("across", across, False))
    for name, instead, label in scenes:
        yield Scene(
            name=name,
            rows=rows,
            positive=positive,
            canary=canary,
            label=True,
            instead=instead,
            other_label=label,
        )


def minimiser_scene(features: int, others: int, *, length: float, angle: float) -> Scene:
    """A scene for minimisers: others of ``length`` r along e₁, canaries at an ``angle`` a, degrees.

    The others come in pairs, r·e₁ with one label and -r·e₁ with the other, so that they pull no
    intercept. With one feature there is no second direction, and the canary is turned around.
    """
    require_count(features=features)
    first, second = np.zeros(features), np.zeros(features)
    first[0], second[min(1, features - 1)] = 1.0, 1.0
    positive = np.arange(others) % 2 == 0
    alone = features == 1
    along = -sin(radians(90.0 if alone else angle)) * first
    across = (0.0 if alone else cos(radians(angle))) * second
    return Scene(
        name=f"others of length {length:g}, canary at {angle:g}°",
        rows=np.where(positive, length, -length)[:, None] * first,
        positive=positive,
        canary=along + across,
        label=True,
        instead=-along if alone else along - across,
        other_label=True,
    )


def _unit(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))
