"""One draw for each release, whatever happens after it, and a solver that always ends."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pytest

from fedpriv.federation.party import party as answering
from fedpriv.federation.party.draws import draw, draw_local_noise
from fedpriv.federation.party.guard import QueryRefused
from fedpriv.federation.queries.bounds import certain_tolerance, share_mechanism
from fedpriv.federation.queries.kinds import ErmQuery
from fedpriv.federation.queries.local_noise import LocalNoise
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import PureEvent
from fedpriv.privacy.mechanisms.shares import NoiseShare
from fedpriv.privacy.planning.objective.objective import ObjectiveNoise
from fedpriv.privacy.randomness import RandomStream
from fedpriv.secagg import FixedPoint
from tests.federation.deployed.deployments import SIZES, Deployment
from tests.federation.deployed.fresh_parties import (
    answer,
    deployed,
    engagement,
    journal,
    never,
    plain,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fedpriv.federation.queries.kinds import Query
    from fedpriv.federation.task import Task

pytestmark = pytest.mark.usefixtures("any_kind")
R, A = Adjacency.REPLACE_ONE, Adjacency.ADD_REMOVE

# Queries whose answers are drawn: by each kind of randomness that a party has.


def sampled(deployment: Deployment) -> Query:
    return plain(deployment, sampling_rate=0.5)


def locally_noisy(deployment: Deployment) -> Query:
    query = plain(deployment, local=LocalNoise(law="gaussian", relative_noise=10.0, adjacency=R))
    task = engagement(deployment).task
    mechanism = query.local_mechanism(task, task.smallest)
    assert mechanism is not None
    return replace(query, event=mechanism.event())


def shared(deployment: Deployment) -> Query:
    share = NoiseShare(law="skellam", parameter=1e16, minimum=2, colluders=1)
    query = plain(deployment, share=share)
    mechanism = share_mechanism(query, engagement(deployment).task)
    assert mechanism is not None
    return replace(query, event=mechanism.event())


def perturbed(deployment: Deployment, *, epsilon: float = 0.05) -> ErmQuery:
    """A minimiser with a linear term, to the tolerance that is certain."""
    task: Task = engagement(deployment).task
    objective = ObjectiveNoise(law="l2-laplace", epsilon=epsilon, delta=0.0, adjacency=R)
    certain = certain_tolerance(task, regulariser=0.01, objective=objective)
    return ErmQuery(
        run=f"{engagement(deployment).run}-1",
        round=0,
        grid=FixedPoint(step=2.0**-30, bits=64),
        event=PureEvent(epsilon=epsilon, adjacency=R),
        regulariser=0.01,
        tolerance=certain,
        objective=objective,
    )


DRAWN = pytest.mark.parametrize("made", [sampled, locally_noisy, shared, perturbed])


class Draws:
    """Everything random that a party draws; it fails with what it has drawn, if told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, failures: int = 0) -> None:
        self.seen: list[bytes] = []
        self.left = failures

        def noted(*arguments: Any, **more: Any) -> Any:
            found = draw(*arguments, **more)
            arrays = (found.sample, found.linear)
            self.before = b"".join(a.tobytes() for a in arrays if a is not None)
            return found

        def failing(*arguments: Any) -> Any:
            noise = draw_local_noise(*arguments)
            self.seen.append(self.before + (b"" if noise is None else noise.tobytes()))
            self.left -= 1
            if self.left >= 0:
                raise RuntimeError("the machine fails")
            return noise

        monkeypatch.setattr(answering, "draw", noted)
        monkeypatch.setattr(answering, "draw_local_noise", failing)


@DRAWN
def test_a_release_that_fails_again_and_again_is_drawn_once(
    deployment: Deployment, made: Callable[[Deployment], Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who could have a release drawn anew until it pleases would pay for one, and choose."""
    draws = Draws(monkeypatch, failures=3)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="the machine fails"):
            answer(deployment, made(deployment))
    first = answer(deployment, made(deployment))
    assert len(draws.seen) == 4
    assert draws.seen[0]
    assert set(draws.seen) == {draws.seen[0]}
    np.testing.assert_array_equal(answer(deployment, made(deployment)), first)
    assert len(draws.seen) == 4  # it was stored, and is not computed any more
    assert len(deployment.reserved("north")) == 1


@DRAWN
def test_two_releases_have_two_draws(
    deployment: Deployment, made: Callable[[Deployment], Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin of the test above: what was drawn shows, and differs from release to release."""
    draws = Draws(monkeypatch)
    for round_ in range(2):
        answer(deployment, replace(made(deployment), round=round_))
    assert draws.seen[0] != draws.seen[1]


def test_a_sample_is_not_drawn_from_the_stream_of_the_noise() -> None:
    secret = bytes(range(32))
    sample, noise = (RandomStream.from_secret(secret, label) for label in ("sample", "noise"))
    assert (sample.words(4) != noise.words(4)).any()


def test_the_draw_is_on_the_disk_before_a_record_is_used_and_erased_when_the_answer_is(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = shared(deployment)
    secrets = []

    def look(*_: object) -> NoReturn:
        found = journal(deployment).given(query.run)
        assert found is not None
        assert found.pending
        secrets.append(found.secret)
        raise RuntimeError

    with monkeypatch.context() as patched:
        patched.setattr(answering.Party, "compute", look)
        for _ in range(2):
            with pytest.raises(RuntimeError):
                answer(deployment, query)
    assert len(set(secrets)) == 1
    state = deployment.home("north") / "state"
    on_disk = [path.read_bytes() for path in state.rglob("*") if path.is_file()]
    assert any(secrets[0] in data for data in on_disk)
    answer(deployment, query)
    on_disk = [path.read_bytes() for path in state.rglob("*") if path.is_file()]
    assert not any(secrets[0] in data for data in on_disk)
    found = journal(deployment).given(query.run)
    assert found is not None
    assert not found.pending


def test_a_release_whose_draw_is_lost_is_not_drawn_again(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger knows that it was begun: a state that was put back gets no other draw."""
    Draws(monkeypatch, failures=1)
    with pytest.raises(RuntimeError):
        answer(deployment, shared(deployment))
    for path in (deployment.home("north") / "state" / "answers").iterdir():
        path.unlink()
    with pytest.raises(QueryRefused, match="begun already, and its draw is not in the state"):
        answer(deployment, shared(deployment))
    assert len(deployment.reserved("north")) == 1


# The solver: whether it finds its minimiser depends neither on the records nor on the noise.


@pytest.mark.parametrize("epsilon", [0.001, 0.1, 1.0])
def test_a_tolerance_that_is_not_certain_with_the_linear_term_is_refused_unread(
    tmp_path: Path, epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The less ε, the longer b: with a tolerance for short ones, only short ones were answered."""
    deployment = deployed(tmp_path, budget={"epsilon": 2.0, "delta": 0.0})
    query = perturbed(deployment, epsilon=epsilon)
    with monkeypatch.context() as patched:
        patched.setattr("fedpriv.data.tables.files.read_table", never)
        without = engagement(deployment).task.certain_tolerance(0.01)
        for tolerance in (without, 0.99 * query.tolerance):
            with pytest.raises(QueryRefused, match="or its noise, would decide whether it answers"):
                answer(deployment, replace(query, tolerance=tolerance))
    assert not list(tmp_path.rglob("*.ledger"))
    assert answer(deployment, query).size == 3


def test_at_the_tolerance_that_is_certain_long_terms_are_answered_like_short_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a server could choose ε and the tolerance so that an answer tells that b is short."""
    deployment = deployed(tmp_path, budget={"epsilon": 2.0, "delta": 0.0})
    query = perturbed(deployment, epsilon=0.001)
    lengths = []

    def noted(*arguments: Any, **more: Any) -> Any:
        found = draw(*arguments, **more)
        assert found.linear is not None
        lengths.append(float(np.linalg.norm(found.linear)))
        return found

    monkeypatch.setattr(answering, "draw", noted)
    for round_ in range(40):
        answer(deployment, replace(query, round=round_))
    assert len(lengths) == 40
    assert max(lengths) > 100 * SIZES[0]  # in units of G = 1: far beyond n·G
