"""The vectorized engine is the ideal secure sum of what the parties would answer themselves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.federation.engines import chunks
from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.party import answers
from fedpriv.federation.party.draws import Draws
from fedpriv.federation.party.guard import Policy, QueryRefused
from fedpriv.federation.party.party import Party
from fedpriv.federation.queries.kinds import ErmQuery, GradientQuery, Query, RiskGradientQuery
from fedpriv.federation.queries.local_noise import LocalNoise
from fedpriv.learning.erm.certificate import ToleranceNotReachedError
from fedpriv.learning.losses import HuberHinge, Logistic, Loss, Softmax
from fedpriv.learning.models import LinearModel, MlpModel
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent, PureEvent
from fedpriv.privacy.planning.objective.objective import ObjectiveNoise
from fedpriv.secagg import FixedPoint
from tests.federation.worlds import linear_task, party_data, random_data, streams
from tests.statistical import assert_counts_follow

ONE = Adjacency.REPLACE_ONE
SIZES = (7, 1, 300, 40, 2, 150)
WIDTH = 5
GRID = FixedPoint(step=2.0**-21)
WIDE = FixedPoint(step=2.0**-40, bits=64)
EVENT = GaussianEvent(adjacency=ONE, relative_noise=2.0)
THETA = np.linspace(-2, 2, WIDTH)
GRADIENT = GradientQuery(run="r", round=0, grid=GRID, event=EVENT, theta=THETA, clip_norm=0.2)
ERM = ErmQuery(run="r", round=0, grid=GRID, event=EVENT, regulariser=0.1, tolerance=1e-8)
RISK = RiskGradientQuery(run="r", round=0, grid=WIDE, event=EVENT, theta=THETA, exchange=0)
QUERIES: dict[str, Query] = {
    "gradient": GRADIENT,
    "gradient, equal weights": replace(GRADIENT, weights="equal"),
    "minimiser": ERM,
    "minimiser, equal weights": replace(ERM, weights="equal"),
    "exact gradient": RISK,
}


def federation(*, workers: int | None = None) -> VectorizedFederation:
    return VectorizedFederation(
        random_data(SIZES, WIDTH),
        task=linear_task(SIZES, WIDTH),
        sampling=streams(1, "parties"),
        workers=workers,
    )


@pytest.mark.parametrize("name", QUERIES)
def test_the_sum_is_that_of_the_parties_own_answers(name: str) -> None:
    """Up to the order of float sums inside a party: at most one grid point each."""
    query, data = QUERIES[name], random_data(SIZES, WIDTH)
    total = np.zeros(WIDTH, query.grid.dtype)
    for index in range(len(SIZES)):
        party = Party(
            data.party(index),
            task=linear_task(SIZES, WIDTH),
            sampling=streams(1, "parties"),
            policy=Policy(unpaid=True),
        )
        total += party.answer(query)
    found = federation().sum(query)
    assert found.sizes == SIZES
    assert found.step == query.grid.step
    spread = np.abs(found.total - query.grid.decode(total))
    # Minimisers agree to 2·tolerance/λ, exact gradients to float64.
    allowed = {"erm": 2 * 1e-8 / 0.1 / query.grid.step, "risk-gradient": 300 * 2.0**-52 / WIDE.step}
    assert spread.max() <= len(SIZES) * (1 + allowed.get(query.kind, 0.0))


def clipped_sum(theta: np.ndarray, clip: float, weights: str) -> np.ndarray:
    """The definition, record by record, in float64."""
    data = random_data(SIZES, WIDTH)
    total = np.zeros(WIDTH)
    for index, size in enumerate(SIZES):
        own = data.party(index)
        for x, y in zip(own.X.astype(np.float64), own.y.astype(np.float64), strict=True):
            gradient = -y * x / (1 + np.exp(y * (x @ theta)))
            factor = min(1, clip / np.linalg.norm(gradient))
            total += gradient * factor * (min(SIZES) / size if weights == "equal" else 1)
    return total


@pytest.mark.parametrize("weights", ["equal", "proportional"])
def test_a_gradient_query_sums_clipped_gradients_record_by_record(weights: str) -> None:
    query = replace(GRADIENT, weights=weights)  # type: ignore[arg-type]
    found = federation().sum(query)
    expected = clipped_sum(THETA, 0.2, weights)
    # The clip is 2^-13 short of C; the rest is rounding.
    np.testing.assert_allclose(found.value, expected, rtol=0, atol=sum(SIZES) * 0.2 * 2.0**-12)
    assert 0.3 < found.diagnostics["clipped"] < 1


def test_a_share_of_no_clipped_gradients_is_reported_too() -> None:
    assert federation().sum(replace(GRADIENT, clip_norm=1.5)).diagnostics == {"clipped": 0.0}
    assert federation().sum(ERM).diagnostics == {}


def test_a_party_that_cannot_certify_its_minimiser_is_named_by_its_index(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 1)  # every party alone
    with pytest.raises(ToleranceNotReachedError) as failure:
        federation(workers=1).sum(replace(ERM, tolerance=1e-30))
    assert failure.value.parties == (0,)
    last = federation(workers=6)._fixed[-1][0].holdings
    with pytest.raises(ToleranceNotReachedError) as failure:
        last.answer(replace(ERM, tolerance=1e-30), Draws())
    assert failure.value.parties == (5,)


def test_an_exact_gradient_is_not_clipped() -> None:
    np.testing.assert_allclose(
        federation().sum(RISK).value, clipped_sum(THETA, np.inf, "proportional"), atol=1e-9
    )


def test_large_parties_add_up_in_float64_under_add_remove() -> None:
    """Float32 sums of 5000 records could round so differently that noise would grow by 8 %."""
    sizes = (5000, 3)
    task, data = linear_task(sizes, WIDTH), random_data(sizes, WIDTH)
    world = VectorizedFederation(data, task=task, sampling=streams(0, "p"))
    both = [
        replace(GRADIENT, grid=WIDE, event=replace(EVENT, adjacency=adjacency))
        for adjacency in (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE)
    ]
    wide, narrow = (world.sum(query) for query in both)
    assert (wide.total != narrow.total).any()
    np.testing.assert_allclose(wide.value, narrow.value, rtol=1e-5)
    assert wide.diagnostics == pytest.approx(narrow.diagnostics)
    sampled = world.sum(replace(both[0], sampling_rate=0.01))
    assert 0 < np.abs(sampled.value).max() < np.abs(wide.value).max()


def test_an_exact_gradient_of_a_large_party_is_computed_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = federation().sum(RISK).value
    monkeypatch.setattr(answers, "_WIDE_NUMBERS", 300)
    np.testing.assert_allclose(federation().sum(RISK).value, whole, rtol=1e-12)


@pytest.mark.parametrize("name", QUERIES)
def test_the_bits_do_not_depend_on_the_number_of_workers(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 900)  # several chunks, large parties alone
    sums = [federation(workers=w).sum(QUERIES[name]).total for w in (1, 2, 5)]
    assert (sums[0] == sums[1]).all()
    assert (sums[0] == sums[2]).all()


@pytest.mark.parametrize("kind", ["gradient", "minimiser"])
@pytest.mark.parametrize("loss", [Logistic(), HuberHinge(smoothing=0.5)], ids=["logistic", "svm"])
def test_nor_do_they_where_a_product_rounds_a_row_by_its_place(kind: str, loss: Loss) -> None:
    sizes, width = tuple(range(3, 40)), 301
    data, task = random_data(sizes, width), linear_task(sizes, width, loss=loss)
    query: Query = replace(ERM, grid=WIDE)
    if kind == "gradient":
        query = replace(GRADIENT, grid=WIDE, theta=np.linspace(-2, 2, width))
    sums = [
        VectorizedFederation(data, task=task, sampling=streams(0, "p"), workers=workers)
        .sum(query)
        .total
        for workers in (1, 2, 3, 7)
    ]
    for other in sums[1:]:
        assert (other == sums[0]).all()


def test_nor_do_they_where_a_large_party_is_added_up_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answers, "_WIDE_NUMBERS", 5_000)
    sizes = (30, 5000, 700, 4000, 100, 3000)
    data, task = random_data(sizes, WIDTH), linear_task(sizes, WIDTH)
    query = replace(
        GRADIENT,
        grid=FixedPoint(step=2.0**-50, bits=64),
        event=replace(EVENT, adjacency=Adjacency.ADD_REMOVE),
    )
    sums = [
        VectorizedFederation(data, task=task, sampling=streams(0, "p"), workers=workers)
        .sum(query)
        .total
        for workers in (1, 2, 3, 6)
    ]
    for other in sums[1:]:
        assert (other == sums[0]).all()


def test_the_callers_threads_are_left_alone() -> None:
    before = torch.get_num_threads()
    federation().sum(GRADIENT)
    assert torch.get_num_threads() == before


@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=8),
    chunk=st.integers(1, 600),
)
def test_chunks_lose_no_record_and_count_none_twice(sizes: list[int], chunk: int) -> None:
    """Each record adds its own index: x = (i + 1)·2^-12, slope 1 by a far threshold."""
    total = sum(sizes)
    X = (np.arange(total)[:, None] + 1) * 2.0**-12
    data = party_data(X, -np.ones(total), tuple(sizes))
    # At a huge θ the slope of the logistic loss is 1 for label -1.
    query = GradientQuery(
        run="r", round=0, grid=GRID, event=EVENT, theta=np.array([1e8]), clip_norm=1.0
    )
    federation = VectorizedFederation(
        data, task=linear_task(tuple(sizes), 1), sampling=streams(0, "p"), workers=2
    )
    before, chunks.CHUNK_BYTES = chunks.CHUNK_BYTES, chunk
    try:
        found = federation.sum(query).value
    finally:
        chunks.CHUNK_BYTES = before
    assert found == pytest.approx([total * (total + 1) / 2 * 2.0**-12], abs=1e-12)


def test_poisson_sampling_takes_every_record_with_its_rate() -> None:
    """Record i adds e_i where it joins: counts over rounds are binomial, each and together."""
    sizes, rounds, rate = (12, 8), 200, 0.3
    data = party_data(np.eye(20), -np.ones(20), sizes)
    federation = VectorizedFederation(data, task=linear_task(sizes, 20), sampling=streams(3, "p"))
    query = replace(GRADIENT, theta=np.full(20, 1e8), clip_norm=2.0, sampling_rate=rate)
    joined = np.zeros(20, np.int64)
    for index in range(rounds):
        joined += np.rint(federation.sum(replace(query, round=index)).value).astype(np.int64)
    law = np.array([rate, 1 - rate])
    for count in joined.tolist():
        assert_counts_follow(np.array([count, rounds - count]), law)
    together = np.array([joined.sum(), 20 * rounds - joined.sum()])
    assert_counts_follow(together, law)
    with pytest.raises(AssertionError):  # teeth: a rate of 0.4 would be caught
        assert_counts_follow(together, np.array([0.4, 0.6]))


def test_a_round_can_be_repeated_and_rounds_differ() -> None:
    query = replace(GRADIENT, sampling_rate=0.5)
    again = [federation().sum(replace(query, round=index)).total for index in (0, 0, 1)]
    assert (again[0] == again[1]).all()
    assert (again[0] != again[2]).any()


def test_a_full_batch_after_a_sampled_one_is_full() -> None:
    world = federation()
    before = world.sum(GRADIENT).total
    world.sum(replace(GRADIENT, sampling_rate=0.1))
    assert (world.sum(GRADIENT).total == before).all()
    world.sum(replace(GRADIENT, clip_norm=0.1))
    assert (world.sum(GRADIENT).total == before).all()


def test_local_noise_is_added_by_every_party() -> None:
    """The same stream with and without records: the difference is the exact sum."""
    noise = LocalNoise(law="gaussian", relative_noise=2.0, adjacency=ONE)
    noisy = federation().sum(replace(GRADIENT, local=noise))
    silent = VectorizedFederation(
        party_data(np.zeros((sum(SIZES), WIDTH)), np.ones(sum(SIZES)), SIZES),
        task=linear_task(SIZES, WIDTH),
        sampling=streams(1, "parties"),
    ).sum(replace(GRADIENT, local=noise))
    assert (noisy.total - silent.total == federation().sum(GRADIENT).total).all()
    assert (silent.total != 0).all()


def test_a_perturbed_objective_gives_every_party_its_own_linear_term() -> None:
    objective = ObjectiveNoise(law="l2-laplace", epsilon=1.0, delta=0.0, adjacency=ONE)
    query = replace(
        ERM, grid=WIDE, objective=objective, event=PureEvent(adjacency=ONE, epsilon=1.0)
    )
    first, again = federation().sum(query), federation().sum(query)
    assert (first.total == again.total).all()
    assert np.abs(first.value - federation().sum(replace(ERM, grid=WIDE)).value).max() > 0.01


def test_models_with_several_scores_and_hidden_layers_are_answered_too() -> None:
    data = random_data(SIZES, WIDTH)
    classes = np.arange(sum(SIZES)) % 3
    dataset = replace(
        data.dataset,
        task="multiclass",
        train=replace(data.dataset.train, y=classes),
        test=replace(data.dataset.test, y=classes[:0]),
        classes=("a", "b", "c"),
    )
    task = replace(
        linear_task(SIZES, WIDTH),
        model=LinearModel(width=WIDTH, classes=3),
        loss=Softmax(classes=3),
    )
    softmax = VectorizedFederation(
        replace(data, dataset=dataset), task=task, sampling=streams(0, "p")
    )
    point = np.zeros(15)
    assert softmax.sum(replace(GRADIENT, theta=point)).total.shape == (15,)
    assert softmax.sum(ERM).total.shape == (15,)
    exact = softmax.sum(replace(RISK, theta=point)).value.reshape(3, WIDTH)
    np.testing.assert_allclose(exact.sum(axis=0), 0, atol=1e-9)  # class gradients cancel
    network = VectorizedFederation(
        data,
        task=replace(linear_task(SIZES, WIDTH), model=MlpModel(widths=(WIDTH, 3, 1))),
        sampling=streams(0, "p"),
    )
    assert network.sum(replace(GRADIENT, theta=np.full(22, 0.1))).total.shape == (22,)


def test_the_guard_of_the_parties_stands_before_the_engine_too() -> None:
    with pytest.raises(QueryRefused, match="wrap around"):
        federation().sum(replace(GRADIENT, clip_norm=1e6))


def test_the_parties_must_be_those_of_the_task() -> None:
    with pytest.raises(ValueError, match="1 parties of the task, got 6"):
        VectorizedFederation(
            random_data(SIZES, WIDTH), task=linear_task((500,), WIDTH), sampling=streams(0, "p")
        )


def test_a_sum_shows_no_number_in_a_log() -> None:
    assert repr(federation().sum(GRADIENT)) == "Sum(5 coordinates of 6 parties)"
