"""A hostile server that picks whom it invites and what it asks each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpriv._collusion import colluders_of
from fedpriv.secagg import Mode, Parameters
from tests.secagg.cohort import Cohort, Play, ideal, random_answers, small

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from fedpriv.secagg.messages import Message

MODES = (Mode.SEMI_HONEST, Mode.ACTIVE)
DIMENSION = 8


@dataclass
class Asked(Play):
    """A round in which every party is told what its answer is about, and so is the server."""

    about: Callable[[int], bytes] = lambda _party: b"the query"

    def answer(self, gone: Collection[int] = ()) -> list[Message]:
        return self._step(
            gone,
            lambda i: self.parties[i].answer(
                self.states[i], self.outboxes[i], self.answers[i], about=self.about(i)
            ),
        )

    def collect_answers(self, sent: Iterable[Message]) -> None:
        self.server_state, boxes = self.server.collect_answers(
            self.server_state, self._see(sent), dimension=DIMENSION, bits=64, about=b"the query"
        )
        self._deliver(boxes)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("gone", [{}, {2: {4}}, {2: {0}, 4: {1}}])
def test_answers_to_one_question_add_up_whoever_drops_out(
    mode: Mode, gone: dict[int, set[int]]
) -> None:
    answers = random_answers(range(5), DIMENSION, 64)
    total = Asked(Cohort(small(mode)), answers).run(gone)
    assert (total.vector == ideal(answers, total.parties)).all()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("apart", [{2}, {0, 1}, {0, 1, 2, 3}])
def test_answers_to_different_questions_stay_masked(mode: Mode, apart: set[int]) -> None:
    """Neither the sum, nor that of either group with all seeds known, shows anything."""
    answers = {i: np.zeros(DIMENSION, dtype=np.uint64) for i in range(5)}
    game = Asked(
        Cohort(small(mode)),
        answers,
        about=lambda i: b"another" if i in apart else b"the query",
    )
    total = game.run()
    # Uniform in 64 bits: one coordinate below 2^32 of eight has a probability of 2^-29 per case,
    # and the dice of these tests are always the same.
    assert (total.vector.view(np.int64) != 0).all()
    assert np.abs(total.vector.view(np.int64).astype(float)).min() > 2.0**32


@given(
    mode=st.sampled_from(MODES),
    parties=st.integers(2, 128),
    absent=st.integers(0, 128),
    corrupt=st.floats(0, 0.99),
    dropout=st.floats(0, 0.99),
)
def test_a_plan_counts_the_corrupt_parties_of_the_whole_roster(
    mode: Mode, parties: int, absent: int, corrupt: float, dropout: float
) -> None:
    roster = parties + absent
    try:
        planned = Parameters.plan(
            mode=mode, parties=parties, roster=roster, corrupt=corrupt, dropout=dropout
        )
    except ValueError:
        return
    bad = colluders_of(corrupt, roster)
    assert planned.colluders == bad
    assert planned.minimum - bad >= 2
    if mode is Mode.ACTIVE:
        # Two openings over any cohorts: fewer than roster - bad honest parties, so one in both.
        assert 2 * (planned.threshold - bad) > roster - bad
        assert planned.minimum >= planned.threshold
    else:
        assert bad < planned.threshold


@pytest.mark.parametrize("mode", MODES)
def test_a_large_cohort_that_could_be_all_corrupt_is_refused(mode: Mode) -> None:
    with pytest.raises(ValueError, match=r"no threshold is secure|are too few"):
        Parameters.plan(mode=mode, parties=130, roster=1000, corrupt=0.13)


def test_a_large_active_cohort_is_most_of_its_roster() -> None:
    planned = Parameters.plan(mode="active", parties=180, roster=200)
    assert (planned.threshold, planned.minimum) == (111, 180)
    with pytest.raises(ValueError, match="300 of 500 parties are too few"):
        Parameters.plan(mode="active", parties=300, roster=500)


def test_who_was_not_announced_counts_as_dropped_out() -> None:
    """Or the round after one with many drop-outs would be impossible."""
    whole = Parameters.plan(mode="active", parties=100, dropout=0.3)
    rest = Parameters.plan(mode="active", parties=70, roster=100, dropout=0.3)
    assert (whole.threshold, rest.threshold) == (56, 56)
    with pytest.raises(ValueError, match="55 of 100 parties are too few"):
        Parameters.plan(mode="active", parties=55, roster=100, dropout=0.3)


def test_a_roster_has_at_least_its_cohort() -> None:
    with pytest.raises(ValueError, match="roster must lie between parties = 5"):
        Parameters.plan(mode="active", parties=5, roster=4)
