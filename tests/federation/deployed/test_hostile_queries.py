"""What a server gets out of deployed parties by messages in another order than an honest one's."""

from __future__ import annotations

from dataclasses import replace
from math import floor, log2, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.data import Bounds, Records
from fedpriv.data.bounds import enforce
from fedpriv.federation.party.answers import Holdings
from fedpriv.federation.party.draws import Draws
from fedpriv.federation.party.guard import Policy, check_query
from fedpriv.federation.party.stack import stack
from fedpriv.federation.protocol.wire import Announce
from fedpriv.federation.queries.bounds import (
    certain_tolerance,
    gradient_sensitivity,
)
from fedpriv.federation.queries.kinds import ErmQuery, GradientQuery
from fedpriv.federation.queries.local_noise import LocalNoise, sensitivity_of
from fedpriv.federation.task import Task
from fedpriv.learning.losses import HuberHinge, HuberRegression, Logistic, Softmax, Squared
from fedpriv.learning.models import LinearModel
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent
from fedpriv.secagg import FixedPoint, Server
from fedpriv.secagg.messages import Confirm, Confirmations, MaskedAnswer, Reveal, Survivors
from tests.federation.deployed.villains import Answered, Villain, shared, shares_of_five

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from fedpriv.learning.batch import RecordBatch
    from fedpriv.learning.losses import Loss
    from fedpriv.secagg.numbers.fixed_point import Ring

pytestmark = pytest.mark.usefixtures("any_kind")
# One release, opened over one set of parties.


def masked(villain: Villain, query: GradientQuery, number: int) -> Answered:
    """A round of masks, honestly, up to the answers of whoever gives one."""
    announced = replace(villain.round(4), number=number)
    server = Server(announced=announced)
    invited = {
        party: Announce(
            run=villain.run,
            round=number,
            party=party,
            cohort=announced.cohort,
            minimum=announced.parameters.minimum,
        )
        for party in villain.everybody
    }
    keys, lists = server.collect_keys(villain.tell(invited))
    shares, deliveries = server.collect_shares(keys, villain.tell(lists))
    answers = villain.tell(deliveries, query=query)
    return Answered(
        server=server,
        shares=shares,
        vectors={a.party: a.vector for a in answers if isinstance(a, MaskedAnswer)},
        query=query,
    )


def opened(
    villain: Villain, answered: Answered, number: int, parties: Sequence[int]
) -> Ring | None:
    """The sum over ``parties``, if they help to open it."""
    run, wanted = villain.run, tuple(parties)
    told = {
        party: Survivors(run=run, round=number, party=party, survivors=wanted) for party in wanted
    }
    signed = {m.party: m.signature for m in villain.tell(told) if isinstance(m, Confirm)}
    lists = {
        party: Confirmations(run=run, round=number, party=party, signatures=signed)
        for party in wanted
    }
    reveals = [m for m in villain.tell(lists) if isinstance(m, Reveal)]
    enough = len(reveals) >= answered.server.announced.parameters.threshold
    return answered.opened(reveals, wanted) if enough and answered.vectors else None


@pytest.mark.parametrize("later", [False, True], ids=["at once", "after the next release"])
@pytest.mark.parametrize("first", ["answered", "only joined"])
def test_a_release_opened_in_one_place_is_opened_in_no_other(
    tmp_path: Path, first: str, *, later: bool
) -> None:
    """Two places in two masked runs, one name: the difference of two sums would be one answer.

    A place kept the answer that it had given. Asked there again, once the journal had gone on to
    the next release, it was masked, and opened over parties of the server's choice: one party's
    answer with one share of the noise, which is 1/n_min of what was paid for.
    """
    deployment = shares_of_five(tmp_path)
    one, other = (Villain(deployment, run=run * 32) for run in (b"a", b"b"))
    query = shared(one)
    for villain in (one, other):
        villain.joined()
    number = 1
    if first == "answered":
        masked(one, query, number)
        number += 1
    whole = opened(other, masked(other, query, 1), 1, one.everybody)
    assert whole is not None
    if later:
        masked(other, shared(one, round=1), 2)
    again = masked(one, query, number)
    assert opened(one, again, number, range(4)) is None
    assert bool(again.vectors) is not later  # the same answer again, as long as it is the latest
    # The next release goes on undisturbed, where it was begun or in a new place.
    following = shared(one, round=1)
    assert opened(one, masked(one, following, number + 1), number + 1, one.everybody) is not None


# Numbers of a query, or of an experiment, at the ends of their ranges.


def huber(sizes: tuple[int, ...], *, threshold: float, feature_bound: float) -> Task:
    return Task(
        model=LinearModel(width=4),
        loss=HuberRegression(threshold=threshold),
        regulariser=1e-40,
        feature_bound=feature_bound,
        sizes=sizes,
    )


@pytest.mark.parametrize("threshold", [1e-120, 1e-135, 3.2e-147])
def test_gradients_whose_squares_vanish_decide_about_no_minimiser(threshold: float) -> None:
    """A server that chooses G so small that ‖∇J‖² is 0, or not, by one record's label.

    A point of any gradient below 10⁻¹⁶² counted as a minimiser: one label moved the answer from 0
    to G/λ, 478 times the sensitivity with a thousand records.
    """
    count, bound = 1000, 1e-15
    task = huber((count,), threshold=threshold, feature_bound=bound)
    query = ErmQuery(
        run="run",
        round=0,
        grid=FixedPoint(step=2.0 ** floor(log2(task.lipschitz / 1e-40 / count / 64)), bits=64),
        event=GaussianEvent(relative_noise=10.0, adjacency=Adjacency.REPLACE_ONE),
        regulariser=1e-40,
        tolerance=certain_tolerance(task, regulariser=1e-40),
        local=LocalNoise(law="gaussian", relative_noise=10.0, adjacency=Adjacency.REPLACE_ONE),
    )
    mechanism = query.local_mechanism(task, count)
    assert mechanism is not None
    check_query(query, task, Policy())
    features = np.full((count, 4), bound / 2 * (1 - 2.0**-22), np.float32)

    def exact(positive: int) -> NDArray[np.float64]:
        labels = np.where(np.arange(count) < positive, 1, -1).astype(np.float32)
        batch = stack(Records(X=features, y=labels), np.array([0, count]), task)
        return Holdings(task, batch, sizes=(count,)).answer(query, Draws()).vectors

    for positive in (1000, *range(996, 986, -1), 500):
        moved = float(np.linalg.norm(exact(positive) - exact(positive - 1)))
        assert moved <= sensitivity_of(mechanism)


def losses(rng: np.random.Generator, regulariser: float) -> tuple[Loss, LinearModel, NDArray[Any]]:
    """A loss with constants at any scale, a model of two coordinates for it, and some labels."""
    scale = 10.0 ** rng.uniform(-30, 3)
    signs = rng.choice([-1.0, 1.0], size=41).astype(np.float32)
    numbers = (rng.uniform(-1, 1, size=41) * 10.0 ** rng.uniform(-20, 0)).astype(np.float32)
    linear = LinearModel(width=2)
    return (
        (Logistic(), linear, signs),
        (HuberHinge(smoothing=scale), linear, signs),
        (HuberRegression(threshold=scale), linear, numbers),
        (Squared(radius=1.000001 / regulariser**0.5, label_bound=1.0), linear, numbers),
        (Softmax(classes=3), LinearModel(width=2, classes=3), rng.integers(0, 3, size=41)),
    )[int(rng.integers(5))]


def neighbours(
    rng: np.random.Generator, task: Task, labels: NDArray[Any]
) -> tuple[RecordBatch, RecordBatch]:
    """Forty records of any length up to the bound, and the same with one exchanged."""
    rows = rng.normal(size=(41, 2)) * 10.0 ** rng.uniform(-20, 0, size=(41, 1))
    if rng.random() < 0.5:
        rows[:] = rows[0] * rng.choice([-1, 1], size=(41, 1))
    features = enforce(
        rows.astype(np.float32),
        Bounds(norm=task.feature_bound, intercept=0.0, scaling="divide"),
        max_norm=sqrt(2) * 10.0 ** rng.uniform(-20, 0),
    )
    order = np.arange(41)
    one, other = order[:40], np.array([40, *order[1:40]])
    found = [
        stack(Records(X=features[part], y=labels[part]), np.array([0, 40]), task)
        for part in (one, other)
    ]
    return found[0], found[1]


@pytest.mark.parametrize("seed", range(40))
def test_no_number_of_a_query_for_gradients_lets_a_record_through(seed: int) -> None:
    """Points, centres and scales from 10⁻³²⁰ to 10³⁰⁸: finite answers, within the sensitivity."""
    rng = np.random.default_rng(seed)
    loss, model, labels = losses(rng, 0.1)
    bound = 10.0 ** rng.uniform(-15, 15)
    task = Task(model=model, loss=loss, regulariser=0.1, feature_bound=bound, sizes=(40,))
    wide = 10.0 ** rng.uniform(-320, 307, size=(3, task.dimension))
    query = GradientQuery(
        run="run",
        round=0,
        grid=FixedPoint(step=2.0**-20, bits=64),
        event=GaussianEvent(relative_noise=10.0, adjacency=Adjacency.REPLACE_ONE),
        theta=rng.normal(size=task.dimension) * (wide[0] if seed % 2 else 10.0),
        clip_norm=2.0 ** rng.uniform(-20, 30),
        centre=wide[1] if seed % 3 == 1 else None,
        scale=np.maximum(wide[2], 5e-324) if seed % 3 else None,
    )
    one, other = (
        Holdings(task, batch, sizes=(40,)).answer(query, Draws()).vectors
        for batch in neighbours(rng, task, labels)
    )
    moved = gradient_sensitivity(task, clip_norm=query.clip_norm, adjacency=Adjacency.REPLACE_ONE)
    assert float(np.linalg.norm(one - other)) <= moved
    query.grid.encode_sum(one, bound=query.answer_bound(task, 40))


@pytest.mark.parametrize("seed", range(40))
def test_no_number_of_a_query_for_minimisers_lets_a_record_through(seed: int) -> None:
    """λ, G and B at any scale, at the tolerance that is certain: always an answer, that far."""
    rng = np.random.default_rng(seed)
    bound = 10.0 ** rng.uniform(-15, 15)
    regulariser = bound**2 * 10.0 ** rng.uniform(-8, 6)
    loss, model, labels = losses(rng, regulariser)
    task = Task(model=model, loss=loss, regulariser=regulariser, feature_bound=bound, sizes=(40,))
    query = ErmQuery(
        run="run",
        round=0,
        grid=FixedPoint(step=2.0 ** floor(log2(task.lipschitz / regulariser) - 30), bits=64),
        event=GaussianEvent(relative_noise=10.0, adjacency=Adjacency.REPLACE_ONE),
        regulariser=regulariser,
        tolerance=certain_tolerance(task, regulariser=regulariser),
        local=LocalNoise(law="gaussian", relative_noise=10.0, adjacency=Adjacency.REPLACE_ONE),
    )
    mechanism = query.local_mechanism(task, 40)
    assert mechanism is not None
    one, other = (
        Holdings(task, batch, sizes=(40,)).answer(query, Draws()).vectors
        for batch in neighbours(rng, task, labels)
    )
    assert float(np.linalg.norm(one - other)) <= sensitivity_of(mechanism)
    query.grid.encode_sum(one, bound=query.answer_bound(task, 40))
