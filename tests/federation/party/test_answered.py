"""Answered once, and opened once: the same rules in memory and on a disk."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.federation.deployed.journal import Journal
from fedpriv.federation.party.answered import (
    Answers,
    Given,
    LatestAnswers,
    answered_once,
    digest_of,
    recalled,
    require_opening,
)
from fedpriv.federation.party.guard import QueryRefused
from fedpriv.federation.queries.kinds import RiskGradientQuery
from fedpriv.federation.queries.local_noise import LocalNoise
from fedpriv.secagg.errors import OutOfOrder
from tests.federation.engines.grids import EVENT, gradient_query

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.secagg.numbers.fixed_point import Ring

RUN = b"r" * 32
NOISE = LocalNoise(law="gaussian", relative_noise=10.0, adjacency=EVENT.adjacency)
NOISY = replace(gradient_query(3), local=NOISE)


@pytest.fixture(params=["memory", "disk"])
def answers(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Each look is one of a fresh process, where there is a disk."""
    if request.param == "memory":
        kept = LatestAnswers()
        return lambda: nullcontext(kept)

    class Opened:
        def __enter__(self) -> Answers:
            journal = Journal(tmp_path)
            self._held = journal.held()
            self._held.__enter__()
            return journal

        def __exit__(self, *error: object) -> None:
            self._held.__exit__(None, None, None)

    return Opened


class Draws:
    """Another vector each time, as noise is."""

    count = 0

    def __call__(self) -> Ring:
        self.count += 1
        return np.full(4, self.count, np.uint64)


def test_a_query_gets_the_answer_that_it_got_and_another_one_none(answers: Any) -> None:
    draws = Draws()
    for _ in range(3):
        with answers() as kept:
            assert (answered_once(NOISY, kept, draws) == 1).all()
    others = (
        replace(NOISY, theta=NOISY.theta * 2),
        replace(NOISY, round=2),
        replace(NOISY, local=None),
        gradient_query(0),
    )
    for other in others:
        with answers() as kept, pytest.raises(QueryRefused, match="release 3 of this run was ans"):
            answered_once(other, kept, draws)
    with answers() as kept:
        assert (answered_once(replace(NOISY, run="another"), kept, draws) == 2).all()
        assert (answered_once(replace(NOISY, round=4), kept, draws) == 3).all()
    with answers() as kept, pytest.raises(QueryRefused, match="release 4 of this run was ans"):
        answered_once(NOISY, kept, draws)


def test_an_answer_that_fails_is_not_given(answers: Any) -> None:
    def fails() -> Ring:
        raise OverflowError

    with answers() as kept, pytest.raises(OverflowError):
        answered_once(NOISY, kept, fails)
    with answers() as kept:
        assert kept.given(NOISY.run) is None


def test_without_noise_an_answer_is_computed_again_and_not_kept(answers: Any) -> None:
    draws, exact = Draws(), gradient_query(3)
    for count in (1, 2):
        with answers() as kept:
            assert (answered_once(exact, kept, draws) == count).all()
            given = kept.given(exact.run)
            assert given is not None
            assert given.vector.size == 0
    with answers() as kept, pytest.raises(QueryRefused, match="second answer"):
        answered_once(NOISY, kept, draws)


def test_all_exchanges_of_a_joint_fit_are_one_question() -> None:
    exchanges = [
        RiskGradientQuery(
            run="run", round=0, grid=NOISY.grid, event=EVENT, theta=np.full(4, n), exchange=n
        )
        for n in range(2)
    ]
    last = Given.to(exchanges[0], salt=bytes(32))
    assert recalled(exchanges[1], last) is last
    assert recalled(replace(exchanges[1], round=1), last) is None
    with pytest.raises(QueryRefused):
        recalled(gradient_query(0), last)
    assert len({digest_of(query) for query in (*exchanges, gradient_query(0), NOISY)}) == 3


def test_a_release_that_was_begun_is_said_to_be() -> None:
    begun = Given.to(NOISY, salt=bytes(32), secret=b"s" * 32)
    assert recalled(NOISY, begun) is begun
    with pytest.raises(QueryRefused, match="begun already"):
        recalled(replace(NOISY, theta=NOISY.theta * 2), begun)


def test_the_latest_answer_is_opened_where_it_was_given_last_and_over_one_set_of_parties() -> None:
    given = replace(Given.to(NOISY, salt=bytes(32)), shared=1, seat=RUN, masks=7)
    everybody, fewer = (0, 1, 2), (1, 2)
    assert require_opening(given, run=RUN, masks=7, survivors=fewer) is given
    opened = replace(given, opened=everybody)
    require_opening(opened, run=RUN, masks=7, survivors=everybody)
    with pytest.raises(OutOfOrder, match="over other parties"):
        require_opening(opened, run=RUN, masks=7, survivors=fewer)
    require_opening(replace(opened, shared=0), run=RUN, masks=7, survivors=fewer)
    for last, run, masks in ((None, RUN, 7), (given, RUN, 6), (given, b"x" * 32, 7)):
        with pytest.raises(OutOfOrder, match="gone on to another sum"):
            require_opening(last, run=run, masks=masks, survivors=everybody)
