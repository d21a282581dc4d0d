"""Plans of second-order steps: one noisy matrix of second moments, then T noisy gradient sums.

**Accounting.** With Gaussian noise σ_M on the matrix, which one record moves by Δ_M, and σ_g on
each sum of gradients, which one record moves by Δ_g, the run is μ-GDP with

    μ² = (Δ_M/σ_M)² + T·(Δ_g/σ_g)²,

since noise is fixed beforehand and the points at which gradients are asked for follow from releases
(Dong, Roth and Su 2022, Cor. 3.3). The composition is exact. The sum is an upper bound under
replace-one, because no pair of records attains both sensitivities: x ⟂ x′ moves the matrix most,
x′ = −x a gradient. A share s of μ² pays for the matrix:

    σ_M = Δ_M/(μ√s),    σ_g = Δ_g·√T/(μ√(1 − s)).

For the matrix as its scaled upper triangle, Δ_M is B² (add-remove) or √2·B² (replace-one). Shares
of noise at the parties divide the budget in the same way, and are priced by their own accountant.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from typing import TYPE_CHECKING

from fedpriv._validate import require_count, require_open_unit, require_positive
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.mechanisms import GaussianMechanism
from fedpriv.privacy.planning.calibration import calibrate
from fedpriv.privacy.planning.fixed_plan import FixedPlan
from fedpriv.privacy.planning.plan import grid_sensitivity, require_sizes
from fedpriv.privacy.unit import DEFAULT_UNIT, Unit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedpriv.privacy.budget import Budget
    from fedpriv.privacy.mechanisms import Mechanism

MATRIX_SHARE = 0.15
ROUNDS = 12
"""Chosen once, on public data: see docs/second-order.md."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondOrderPlan(FixedPlan):
    """A `FixedPlan` whose first release is a matrix, and all others are gradients.

    Attributes:
        matrix_width: how many numbers the matrix has.
    """

    matrix_width: int

    def __post_init__(self) -> None:
        require_count(matrix_width=self.matrix_width)
        FixedPlan.__post_init__(self)
        if self.rounds < 2:
            raise ValueError("mechanisms must hold a matrix and at least one sum of gradients.")

    @property
    def main(self) -> tuple[Mechanism, ...]:
        """The model moves along gradients; the matrix only determines how far."""
        return self.mechanisms[1:]

    @property
    def gdp_exact(self) -> bool:
        """False under replace-one: no pair of records attains both sensitivities."""
        return self.adjacency is Adjacency.ADD_REMOVE

    @property
    def size_in_words(self) -> str:
        """That of the matrix, and that of a gradient."""
        return f"{self.matrix_width} coordinates (the first) and {self.dimension} (all others)"


def noise_shape(rounds: int, matrix_share: float = MATRIX_SHARE) -> tuple[float, ...]:
    """The noise of each release in units of its sensitivity, at μ = 1: σ_M/Δ_M, then σ_g/Δ_g.

    >>> shape = noise_shape(12)
    >>> round(shape[0], 9), round(shape[1], 9), round(sum(z**-2 for z in shape), 9)
    (2.581988897, 3.757345747, 1.0)
    """
    require_count(rounds=rounds)
    require_open_unit(matrix_share=matrix_share)
    return (1 / sqrt(matrix_share), *(sqrt(rounds / (1 - matrix_share)),) * rounds)


def second_order_plan(
    *,
    budget: Budget,
    rounds: int,
    matrix_sensitivity: float,
    gradient_sensitivity: float,
    clip_norm: float,
    sizes: Sequence[int],
    dimension: int,
    matrix_width: int,
    step: float,
    adjacency: Adjacency | str,
    matrix_share: float = MATRIX_SHARE,
    accountant: str = "auto",
    unit: Unit | str = DEFAULT_UNIT,
    sampling_rate: float = 1.0,
    parts: int = 1,
) -> SecondOrderPlan:
    """One noisy matrix and T noisy sums of clipped gradients within a budget.

    Guarantee. That of Gaussian noise calibrated to the sensitivities, plus √width·step for the
    grid, if one unit moves the matrix and the sums by at most that.

    Args:
        budget: (ε, δ) of the whole run.
        rounds: T.
        matrix_sensitivity: Δ_M: how far one unit moves the scaled triangle as computed, in L2,
            before the grid.
        gradient_sensitivity: Δ_g: how far it moves a sum of gradients, likewise; at least 2C
            (replace-one) or C (add-remove).
        clip_norm: C, the bound on each unit's gradient.
        sizes: n_j of every party in the sum.
        dimension: d, of a gradient.
        matrix_width: how many numbers the triangle has.
        step: grid width of all sums.
        adjacency: which data sets are compared.
        matrix_share: s, the share of μ² that pays for the matrix.
        accountant: name, or "auto".
        unit: whose records the sensitivities are stated for.
        sampling_rate: Poisson rate of the units of every release; 1 is all of them.
        parts: at how many parties a unit has records: see `gradient_plan`. Each also moves the
            matrix by at most an equal part of its sensitivity.
    """
    relation, whose = Adjacency(adjacency), Unit(unit)
    require_sizes(sizes)
    require_positive(clip_norm=clip_norm, matrix_sensitivity=matrix_sensitivity)
    if gradient_sensitivity < relation.sum_sensitivity * clip_norm:
        raise ValueError(
            f"gradient_sensitivity must be at least {relation.sum_sensitivity:g} times the "
            f"clip_norm of {clip_norm:g} under {relation.value} adjacency, got "
            f"{gradient_sensitivity:g}."
        )
    shape = noise_shape(rounds, matrix_share)
    calibrated = calibrate(
        epsilon=budget.epsilon,
        delta=budget.delta,
        rounds=rounds + 1,
        sampling_rate=sampling_rate,
        parts=parts,
        adjacency=relation,
        unit=whose,
        shape=shape,
        accountant=accountant,
    )
    moved = (
        grid_sensitivity(matrix_sensitivity, dimension=matrix_width, step=step),
        *(grid_sensitivity(gradient_sensitivity, dimension=dimension, step=step),) * rounds,
    )
    noise = (z / relation.sum_sensitivity for z in calibrated.noise_multipliers)
    return SecondOrderPlan(
        strategy="second-order",
        query=(
            "the sum of its records' second moments, once, and then the sum of their clipped "
            "gradients at the current model"
        ),
        released=(
            f"a noisy matrix of second moments ({matrix_width} numbers), and every round's noisy "
            "sum of gradients, hence every model of the run"
        ),
        budget=budget,
        mechanisms=tuple(
            GaussianMechanism(
                sensitivity=delta, stddev=relative * delta, adjacency=relation, unit=whose
            )
            for delta, relative in zip(moved, noise, strict=True)
        ),
        parties=len(sizes),
        records=sum(sizes),
        smallest_party=min(sizes),
        dimension=dimension,
        matrix_width=matrix_width,
        step=step,
        clip_norm=clip_norm,
        sampling_rate=sampling_rate,
        parts=parts,
        accountant=calibrated.accountant,
    )


def least_records(*, size: int, matrix_stddev: float, feature_bound: float) -> float:
    """√2·σ_M·d^1.5/B²: with fewer records, noise hides the mean eigenvalue of the matrix.

    A rule of thumb. The mean eigenvalue of the matrix over N is at most B²/d, and the noise has a
    norm of about σ_M√(2d). A few large eigenvalues may exceed it with far fewer records.

    >>> 23_400 < least_records(size=105, matrix_stddev=15.426346, feature_bound=1.0) < 23_500
    True
    """
    require_count(size=size)
    return sqrt(2 * size**3) * matrix_stddev / feature_bound**2


def of_persons(plan: SecondOrderPlan) -> SecondOrderPlan:
    """The same in words for persons: how each one's records become one contribution."""
    return replace(
        plan,
        query=(
            "the sum of its persons' mean second moments, once, and then the sum of their clipped "
            "gradients at the current model, each person's summed before it is clipped"
        ),
    )
