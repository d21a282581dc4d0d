"""However a minimiser is computed, it is the same: by party, in one batch, in any coordinates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize
from torch import Tensor

from fedpriv.learning.erm import solver as erm
from fedpriv.learning.erm.batch import ErmBatch
from fedpriv.learning.erm.conjugate_gradients import conjugate_gradients
from fedpriv.learning.erm.problem import ErmProblem
from fedpriv.learning.erm.solver import solve
from fedpriv.learning.erm.spaces import DualSpace, KrylovSpace
from fedpriv.learning.losses import (
    Logistic,
    Loss,
    Squared,
)
from tests.learning.erm.erm_problems import (
    TOLERANCE,
    every_loss,
    exact_gradient_norm,
    forms_of,
    make_problem,
    only,
    solve_in,
    with_and_without_noise,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

# ---------------------------------------------------------------------------- agreement


@with_and_without_noise
def test_all_coordinate_systems_find_the_same_minimiser(loss: Loss, perturbed: bool) -> None:
    problem = make_problem(loss, [3, 70, 8, 130], 7, regulariser=0.01, perturbed=perturbed)
    first, *rest = (solve_in(form, problem) for form in forms_of(loss))
    for other in rest:
        apart = (first - other).norm(dim=(1, 2))
        assert (apart <= 2 * TOLERANCE / problem.strong_convexity).all()


@every_loss
@pytest.mark.parametrize("memory_limit", [1, 4096, 2**30])
def test_batched_equals_one_by_one(loss: Loss, memory_limit: int) -> None:
    """Within 2·tolerance/Λ, which strong convexity guarantees for certified answers."""
    sizes = [1, 3, 100, 12, 3, 65, 64, 2]
    problem = make_problem(loss, sizes, 8, regulariser=0.02)
    together = solve(problem, tolerance=TOLERANCE, memory_limit=memory_limit).theta
    for j in range(len(sizes)):
        alone = solve(only(problem, j), tolerance=TOLERANCE).theta[0]
        assert (together[j] - alone).norm() <= 2 * TOLERANCE / 0.02


@every_loss
def test_a_partys_answer_does_not_depend_on_the_records_of_others(loss: Loss) -> None:
    """Else one record would move every party's answer. Rounding may differ: batches shrink."""
    problem = make_problem(loss, [3, 90, 12, 3, 40, 5] * 3, 12)
    changed = problem.features.clone()
    changed[:93] = 0.01 * changed[:93].flip(1)
    other = ErmProblem(
        features=changed,
        labels=problem.labels,
        offsets=problem.offsets,
        loss=loss,
        regulariser=problem.regulariser,
    )
    before, after = solve(problem, tolerance=1e-4).theta, solve(other, tolerance=1e-4).theta
    assert (before[:2] - after[:2]).norm() > 1e-3
    assert (before[2:] - after[2:]).abs().max() <= 1e-10  # 2·tolerance/Λ would be 2e-2


@every_loss
def test_repeating_a_run_gives_the_same_bits(loss: Loss) -> None:
    problem = make_problem(loss, [3, 100, 12], 8)
    first, second = solve(problem), solve(problem)
    assert torch.equal(first.theta, second.theta)
    assert torch.equal(first.certificate.gradient_norm, second.certificate.gradient_norm)


def test_the_number_of_threads_moves_an_answer_by_no_more_than_the_tolerance_allows() -> None:
    problem = make_problem(Logistic(), [300] * 40, 20, regulariser=0.01)
    threads = torch.get_num_threads()
    answers = []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            answers.append(solve(problem).theta)
    finally:
        torch.set_num_threads(threads)
    assert (answers[0] - answers[1]).norm(dim=1).max() <= 2 * TOLERANCE / 0.01


@with_and_without_noise
def test_scipy_agrees_with_the_minimiser(loss: Loss, perturbed: bool) -> None:
    problem = make_problem(loss, [35], 5, regulariser=0.05, perturbed=perturbed)
    batch = ErmBatch.of(problem)
    mu = problem.strong_convexity.item()

    def value(theta: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        at = torch.from_numpy(theta).view(batch.shape).requires_grad_()
        J = batch.value(at).sum()
        (gradient,) = torch.autograd.grad(J, at)
        return J.item(), gradient.flatten().numpy()

    start = np.zeros(5 * loss.outputs)
    options = {"gtol": 1e-7, "ftol": 0, "maxfun": 5000, "maxiter": 5000}
    theirs = optimize.minimize(value, start, jac=True, method="L-BFGS-B", options=options)
    slack = np.linalg.norm(value(theirs.x)[1])
    assert slack < 1e-4
    ours = solve_in(forms_of(loss)[0], problem).flatten().numpy()
    assert np.linalg.norm(ours - theirs.x) <= (slack + TOLERANCE) / mu


def test_a_single_record_has_the_minimiser_of_its_closed_form() -> None:
    """θ = a·x with λa = 1/(1 + eᵃ), for one record x of norm 1 and label +1."""
    x = torch.tensor([[0.6, 0.8]], dtype=torch.float64)
    problem = ErmProblem(
        features=x,
        labels=torch.ones(1),
        offsets=torch.tensor([0, 1]),
        loss=Logistic(),
        regulariser=0.3,
    )
    a = optimize.brentq(lambda a: 0.3 * a - 1 / (1 + np.exp(a)), 0, 10, xtol=1e-15)
    torch.testing.assert_close(solve(problem, tolerance=1e-14).theta, a * x, rtol=0, atol=1e-13)


def test_many_tiny_parties_are_solved_together() -> None:
    m = 20_000
    problem = make_problem(Logistic(), [3] * m, 3, regulariser=0.1)
    theta, certificate = solve(problem)
    assert theta.shape == (m, 3)
    assert (certificate.gradient_norm <= TOLERANCE).all()
    for j in (0, 777, m - 1):
        assert exact_gradient_norm(problem, theta[j], j) <= certificate.gradient_norm[j].item()


def test_more_coordinates_than_a_factor_should_have_use_conjugate_gradients() -> None:
    problem = make_problem(Logistic(), [700, 20], 600, regulariser=0.01)
    forms = [(parties.tolist(), form) for parties, form in erm._groups(problem, TOLERANCE, 2**30)]
    assert forms == [([0], KrylovSpace), ([1], DualSpace)]
    assert (solve(problem).certificate.gradient_norm <= TOLERANCE).all()


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=30),
    d=st.integers(1, 30),
    limit=st.integers(1, 10**6),
)
def test_groups_hold_every_party_once_and_keep_to_the_memory_limit(
    sizes: list[int], d: int, limit: int
) -> None:
    problem = make_problem(Logistic(), sizes, d)
    seen: list[int] = []
    for parties, form in erm._groups(problem, TOLERANCE, limit):
        seen += parties.tolist()
        held = problem.sizes[parties]
        factor = held.square() if form is DualSpace else torch.full_like(held, d**2)
        need = (16 * held * d + 32 * factor).sum()
        assert len(parties) == 1 or need <= limit
        assert form is not DualSpace or held.max() <= 1.25 * held.min() + 1
    assert sorted(seen) == list(range(len(sizes)))


# ---------------------------------------------------------------------------- the batch


@every_loss
@pytest.mark.parametrize("whole", [False, True])
def test_value_gradient_and_hessian_of_a_batch_are_consistent(loss: Loss, whole: bool) -> None:
    perturbed = not isinstance(loss, Squared)
    problem = make_problem(loss, [3, 150, 64, 1], 5, perturbed=perturbed, seed=3)
    batch = ErmBatch.of(problem, whole=whole)
    rng = np.random.default_rng(7)
    theta = torch.from_numpy(rng.normal(size=batch.shape)).requires_grad_()
    v = torch.from_numpy(rng.normal(size=batch.shape))
    (gradient,) = torch.autograd.grad(batch.value(theta).sum(), theta)
    torch.testing.assert_close(batch.gradient(theta).detach(), gradient, rtol=1e-10, atol=1e-12)
    (product,) = torch.autograd.grad(batch.gradient(theta), theta, v)
    scores = batch.scores(theta.detach())
    got = batch.hessian_product(scores, v)
    torch.testing.assert_close(got, product, rtol=1e-10, atol=1e-12)


@every_loss
def test_gradient_sums_at_a_common_point_add_up_to_the_pooled_gradient(loss: Loss) -> None:
    problem = make_problem(loss, [3, 150, 64, 1], 5)
    theta = torch.linspace(-1, 1, 5 * loss.outputs, dtype=torch.float64).view(loss.outputs, 5)
    pooled = ErmProblem(
        features=problem.features,
        labels=problem.labels,
        offsets=torch.tensor([0, 218]),
        loss=loss,
        regulariser=problem.regulariser,
    )
    total = ErmBatch.of(problem).gradient_sum(theta).sum(0)
    torch.testing.assert_close(total, ErmBatch.of(pooled).gradient_sum(theta)[0])
    torch.testing.assert_close(
        total / 218 + problem.regulariser * theta, ErmBatch.of(pooled).gradient(theta)[0]
    )


# ---------------------------------------------------------------------------- linear systems


def _systems(seed: int) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(5, 6, 6)))[0]
    spectra = 10 ** rng.uniform(-2, 2, size=(5, 6, 1))
    A = torch.from_numpy(basis @ (spectra * basis.transpose(0, 2, 1)))
    return A, torch.from_numpy(rng.normal(size=(5, 1, 6)))


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=20)
def test_conjugate_gradients_meet_their_goals_and_never_overshoot(seed: int) -> None:
    A, right = _systems(seed)
    goal = torch.logspace(-6, 1, 5, dtype=torch.float64)
    full = torch.linalg.solve(A, right.transpose(1, 2)).transpose(1, 2)
    limit = (right * full).sum((1, 2))
    u = conjugate_gradients(lambda v: torch.bmm(v, A), right, goal=goal, max_steps=60)
    assert ((torch.bmm(u, A) - right).norm(dim=(1, 2)) <= goal + 1e-9).all()
    for steps in range(5):
        u = conjugate_gradients(lambda v: torch.bmm(v, A), right, goal=0 * goal, max_steps=steps)
        work = (right * u).sum((1, 2))
        torch.testing.assert_close((u * torch.bmm(u, A)).sum((1, 2)), work)
        assert (work <= limit * (1 + 1e-9)).all()


def test_a_system_that_is_solved_is_left_alone_while_others_go_on() -> None:
    A, right = _systems(1)
    right[2] = 0.0
    goal = torch.tensor([1e3, 1e-8, 0.0, 1e-3, 1e-12], dtype=torch.float64)
    u = conjugate_gradients(lambda v: torch.bmm(v, A), right, goal=goal, max_steps=60)
    assert torch.isfinite(u).all()
    assert (u[[0, 2]] == 0).all()
