"""The guard of a party: what it refuses, and what it never lets out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedpriv.data.dataset import Records
from fedpriv.federation.party.guard import Policy, QueryRefused
from fedpriv.federation.party.party import Party
from fedpriv.federation.queries.kinds import ErmQuery, GradientQuery, Query, RiskGradientQuery
from fedpriv.federation.queries.local_noise import LocalNoise
from fedpriv.learning.erm.certificate import ToleranceNotReachedError
from fedpriv.learning.losses import Logistic
from fedpriv.learning.models import MlpModel
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent, PureEvent
from fedpriv.secagg import FixedPoint
from tests.federation.worlds import linear_task, random_data, streams

ONE = Adjacency.REPLACE_ONE
TASK = linear_task((30, 50), 4)
GRID = FixedPoint(step=2.0**-20)
EVENT = GaussianEvent(adjacency=ONE, relative_noise=2.0)
GRADIENT = GradientQuery(run="r", round=0, grid=GRID, event=EVENT, theta=np.ones(4), clip_norm=1.0)
ERM = ErmQuery(run="r", round=0, grid=GRID, event=EVENT, regulariser=0.1, tolerance=1e-8)
RISK = RiskGradientQuery(
    run="r",
    round=0,
    grid=FixedPoint(step=2.0**-40, bits=64),
    event=EVENT,
    theta=np.ones(4),
    exchange=0,
)


def party(policy: Policy | None = None, *, index: int = 0) -> Party:
    records = random_data(TASK.sizes, 4).party(index)
    return Party(records, task=TASK, sampling=streams(0, "party"), policy=policy)


@pytest.mark.parametrize("query", [GRADIENT, ERM, RISK], ids=lambda q: q.kind)
def test_a_lawful_query_is_answered_with_integers_within_its_bound(query: Query) -> None:
    answer = query.grid.decode(party().answer(query)) * query.grid.step
    assert answer.shape == (4,)
    bound = {"gradient": 30.0, "erm": 30 / 80 / 0.1, "risk-gradient": 30.0}[query.kind]
    assert 0 < np.abs(answer).max() <= bound


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (replace(GRADIENT, theta=np.ones(3)), "4 coordinates"),
        (replace(GRADIENT, theta=np.ones(5)), "4 coordinates"),
        (replace(RISK, theta=np.ones(1)), "4 coordinates"),
        (replace(GRADIENT, event=None), "no privacy event"),
        (replace(GRADIENT, clip_norm=1e6), "wrap around"),
        (replace(GRADIENT, grid=FixedPoint(step=2.0**-40)), "wrap around"),
        (replace(ERM, regulariser=1e-9), "wrap around"),
        (replace(RISK, grid=FixedPoint(step=2.0**-28)), "wrap around"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.kind,
)
def test_a_query_with_wrong_bounds_is_refused(query: Query, reason: str) -> None:
    with pytest.raises(QueryRefused, match=reason):
        party().answer(query)


def test_a_point_that_was_made_not_finite_behind_the_constructor_is_refused() -> None:
    query = replace(GRADIENT)
    object.__setattr__(query, "theta", np.array([1.0, np.nan, 0.0, 0.0]))
    with pytest.raises(QueryRefused, match="finite"):
        party().answer(query)


def test_a_clip_outside_the_proven_range_is_refused() -> None:
    with pytest.raises(ValueError, match="clip_norm must lie in"):
        party().answer(replace(GRADIENT, clip_norm=1e-9))


def test_a_policy_decides_which_questions_are_answered() -> None:
    closed = Policy(queries=("gradient",))
    party(closed).answer(GRADIENT)
    with pytest.raises(QueryRefused, match="kind 'risk-gradient'"):
        party(closed).answer(RISK)
    open_ = Policy(unpaid=True)
    assert party(open_).answer(replace(GRADIENT, event=None)).shape == (4,)


def test_a_policy_names_only_queries_that_exist() -> None:
    with pytest.raises(ValueError, match="Did you mean 'gradient'"):
        Policy(queries=("gradients",))


def test_an_unknown_kind_of_query_is_refused() -> None:
    class Everything(GradientQuery):
        kind = "everything"

    with pytest.raises(QueryRefused, match="everything"):
        party().answer(
            Everything(run="r", round=0, grid=GRID, event=EVENT, theta=np.ones(4), clip_norm=1.0)
        )


def test_an_event_must_be_that_of_the_noise_that_the_party_is_told_to_add() -> None:
    noise = LocalNoise(law="gaussian", relative_noise=2.0, adjacency=ONE)
    party().answer(replace(GRADIENT, local=noise))
    for event in (
        replace(EVENT, relative_noise=2.1),
        replace(EVENT, adjacency=Adjacency.ADD_REMOVE),
        PureEvent(adjacency=ONE, epsilon=0.5),
    ):
        with pytest.raises(QueryRefused, match="not that of the noise"):
            party().answer(replace(GRADIENT, local=noise, event=event))


def test_a_party_that_cannot_certify_its_minimiser_does_not_answer() -> None:
    with pytest.raises(ToleranceNotReachedError):
        party().answer(replace(ERM, tolerance=1e-30))


def test_a_minimiser_of_a_model_that_is_not_convex_is_refused() -> None:
    task = replace(TASK, model=MlpModel(widths=(4, 3, 1)))
    made = Party(random_data(TASK.sizes, 4).party(0), task=task, sampling=streams(0, "p"))
    with pytest.raises(ValueError, match="needs a convex problem"):
        made.answer(ERM)


def test_answers_stay_finite_for_extreme_models() -> None:
    query = replace(GRADIENT, theta=np.full(4, 1e300))
    answer = GRID.decode(party().answer(query)) * GRID.step
    assert np.isfinite(answer).all()
    assert np.abs(answer).max() <= 30


def records(*, scale: float = 0.5, label: float = 1.0) -> Records:
    """Thirty records, the fourth of them of a given norm and label."""
    made = random_data(TASK.sizes, 4).party(0)
    X, y = made.X.copy(), made.y.astype(np.float32)
    X[3] *= scale / np.linalg.norm(X[3])
    y[3] = label
    return Records(X=X, y=y)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"scale": 1.001}, "feature_bound"), ({"label": 0.5}, "labels must be")],
)
def test_records_that_break_a_promise_of_the_task_are_refused_without_being_shown(
    changes: dict[str, float], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason) as refusal:
        Party(records(**changes), task=TASK, sampling=streams(0, "p"))
    assert "1.001" not in str(refusal.value)
    assert "0.5" not in str(refusal.value)


def test_a_party_has_a_size_that_the_task_states() -> None:
    with pytest.raises(ValueError, match="as many as the task states"):
        Party(records().take(slice(0, 29)), task=TASK, sampling=streams(0, "p"))


def test_the_loss_of_the_task_fits_its_model() -> None:
    with pytest.raises(ValueError, match="one output a score"):
        replace(TASK, model=MlpModel(widths=(4, 2)), loss=Logistic())
