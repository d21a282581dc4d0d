"""Shares at the parties: what an answer carries, what the guard refuses, and one draw a round."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from math import sqrt
from typing import Any

import numpy as np
import pytest

from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.party.draws import draw_local_noise
from fedpriv.federation.party.guard import Policy, QueryRefused, check_query
from fedpriv.federation.party.party import Party
from fedpriv.federation.queries.bounds import fits, grid_of, require_minimum, share_mechanism
from fedpriv.federation.queries.kinds import ErmQuery, GradientQuery, Query, RiskGradientQuery
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent, PureEvent
from fedpriv.privacy.mechanisms.shares import SHARE_LAWS, NoiseShare
from fedpriv.privacy.randomness import RandomStream
from fedpriv.secagg import FixedPoint
from tests.federation.worlds import linear_task, random_data, streams
from tests.statistical import assert_mean_is

ONE = Adjacency.REPLACE_ONE
SIZES = (3, 4, 5, 6, 7)
WIDTH = 2000
TASK = linear_task(SIZES, WIDTH)
DATA = random_data(SIZES, WIDTH)
GRID = FixedPoint(step=2.0**-12)
WIDE = FixedPoint(step=2.0**-12, bits=64)
PARAMETERS = {"skellam": 1e6, "discrete-gaussian": 1e3, "polya": 1e3}
SHARES: dict[str, NoiseShare] = {
    law: NoiseShare(law=law, parameter=PARAMETERS[law], minimum=4, colluders=1)
    for law in SHARE_LAWS
}


def paid(query: Query, share: NoiseShare) -> Any:
    """The query with a share, and the event that the share implies."""
    mechanism = share_mechanism(replace(query, share=share), TASK)
    assert mechanism is not None
    return replace(query, share=share, event=mechanism.event())


EVENT = GaussianEvent(adjacency=ONE, relative_noise=2.0)
GRADIENT = GradientQuery(
    run="r", round=0, grid=WIDE, event=EVENT, theta=np.zeros(WIDTH), clip_norm=1.0
)
ERM = ErmQuery(run="r", round=0, grid=WIDE, event=EVENT, regulariser=0.5, tolerance=1e-8)
SHARED: dict[str, Any] = {law: paid(GRADIENT, share) for law, share in SHARES.items()}
every_law = pytest.mark.parametrize("law", SHARE_LAWS)


def party(index: int = 0, policy: Policy | None = None, *, seed: int = 0) -> Party:
    return Party(DATA.party(index), task=TASK, sampling=streams(seed, f"p{index}"), policy=policy)


def integers(answer: Any) -> Any:
    return WIDE.decode(answer)


# --- What an answer carries ---------------------------------------------------------------------


@every_law
def test_an_answer_is_the_exact_one_plus_a_share(law: str) -> None:
    """Seven standard errors, 3e-12; half the noise is caught."""
    noise = integers(party().answer(SHARED[law])) - integers(party().answer(GRADIENT))
    squares = np.square(noise.astype(float))
    share = SHARES[law]
    fourth = float(squares.var())
    assert_mean_is(squares, share.variance, fourth)
    with pytest.raises(AssertionError, match="outside"):
        assert_mean_is(squares / 4, share.variance, fourth / 16)


@every_law
def test_every_allowed_set_of_survivors_releases_at_least_the_accounted_noise(law: str) -> None:
    """All sums of at least four of five parties, each known share of one subtracted; 3e-12 each."""
    query = SHARED[law]
    accounted = share_mechanism(query, TASK)
    assert accounted is not None
    exact = [integers(party(j).answer(GRADIENT)) for j in range(5)]
    noisy = [integers(party(j).answer(query)) for j in range(5)]
    for size in (4, 5):
        for survivors in combinations(range(5), size):
            total = sum(noisy[j] - exact[j] for j in survivors)
            for colluder in (None, *survivors):
                known = 0 if colluder is None else noisy[colluder] - exact[colluder]
                squares = np.square((total - known) * GRID.step)
                error = 7 * squares.std() / sqrt(WIDTH)
                assert squares.mean() >= accounted.noise_stddev**2 - error


@every_law
@pytest.mark.parametrize("query", [GRADIENT, ERM], ids=lambda q: q.kind)
def test_the_engine_adds_the_shares_of_all_parties_to_the_same_integers(
    law: str, query: Query
) -> None:
    """Seven standard errors, 3e-12."""
    asked = paid(query, SHARES[law])
    engine = VectorizedFederation(DATA, task=TASK, sampling=streams(0, "v"))
    noise = (engine.sum(asked).total - engine.sum(query).total).astype(float)
    assert_mean_is(np.square(noise), 5 * SHARES[law].variance, float(np.square(noise).var()))
    stream = RandomStream.seeded(0, "v", 0)
    assert (noise == draw_local_noise(asked, TASK, SIZES, stream)).all()


def test_a_share_in_a_small_ring_wraps_with_the_sum_and_not_by_itself() -> None:
    share = replace(SHARES["skellam"], parameter=100.0)
    query = replace(paid(GRADIENT, share), grid=GRID)
    total = np.zeros(WIDTH, GRID.dtype)
    for j in range(5):
        total += party(j).answer(query)
    exact = VectorizedFederation(DATA, task=TASK, sampling=streams(0, "v"))
    noise = GRID.decode(total) - exact.sum(replace(GRADIENT, grid=GRID)).total
    assert np.abs(noise).max() < share.reach(5)
    assert np.unique(noise).size > 50


# --- The guard ----------------------------------------------------------------------------------


@every_law
def test_a_query_with_its_own_event_is_answered(law: str) -> None:
    assert party().answer(SHARED[law]).shape == (WIDTH,)
    assert party().answer(paid(ERM, SHARES[law])).shape == (WIDTH,)


@every_law
def test_shares_that_count_no_peer_as_an_observer_are_refused(law: str) -> None:
    """Every party knows its own share, and sees what is released."""
    alone = paid(GRADIENT, replace(SHARES[law], colluders=0))
    with pytest.raises(QueryRefused, match="sized for 0 colluders"):
        party().answer(alone)


LIES: list[dict[str, Any]] = [
    {"parameter": 2e6},
    {"parameter": 900.0},
    {"minimum": 5},
    {"minimum": 3},
    {"colluders": 2},
]


@pytest.mark.parametrize(
    ("law", "lie"),
    # The event of Pólya shares states ε alone; n_min is in the law of the share itself.
    [(law, lie) for law in SHARE_LAWS for lie in LIES if law != "polya" or "parameter" in lie],
    ids=str,
)
def test_an_event_that_the_shares_do_not_imply_is_refused(law: str, lie: dict[str, Any]) -> None:
    lying = replace(SHARED[law], share=replace(SHARES[law], **lie))
    with pytest.raises(QueryRefused, match="not that of the shares"):
        party().answer(lying)


@pytest.mark.parametrize(
    "change",
    [
        {"clip_norm": 2.0},
        {"grid": FixedPoint(step=2.0**-13, bits=64)},
        {"event": EVENT},
        {"event": PureEvent(adjacency=ONE, epsilon=1.0)},
    ],
    ids=["clip", "grid", "gaussian", "pure"],
)
def test_a_query_whose_bounds_are_not_those_of_the_event_is_refused(
    change: dict[str, Any],
) -> None:
    with pytest.raises(QueryRefused, match="not that of the shares"):
        party().answer(replace(SHARED["skellam"], **change))


def test_another_adjacency_is_another_event() -> None:
    query = SHARED["skellam"]
    event = replace(query.event, adjacency=Adjacency.ADD_REMOVE)
    with pytest.raises(QueryRefused, match="not that of the shares"):
        party().answer(replace(query, event=event))
    weighted = paid(
        replace(ERM, event=replace(EVENT, adjacency=Adjacency.ADD_REMOVE)), SHARES["skellam"]
    )
    with pytest.raises(QueryRefused, match="replace-one"):
        party().answer(weighted)


@every_law
def test_a_minimum_that_counts_on_more_parties_than_are_sure_is_refused(law: str) -> None:
    """Six of five; and four, where this party helps to open sums of three."""
    with pytest.raises(QueryRefused, match="assume 6 parties"):
        party().answer(paid(GRADIENT, replace(SHARES[law], minimum=6)))
    with pytest.raises(QueryRefused, match="helps to open sums of 3 of 5"):
        party(policy=Policy(minimum=3)).answer(SHARED[law])
    assert party(policy=Policy(minimum=4)).answer(SHARED[law]).shape == (WIDTH,)


@every_law
def test_shares_for_fewer_colluders_than_the_party_fears_are_refused(law: str) -> None:
    assert party(policy=Policy(colluding=0.2)).answer(SHARED[law]).shape == (WIDTH,)
    with pytest.raises(QueryRefused, match="sized for 1 colluders"):
        party(policy=Policy(colluding=0.4)).answer(SHARED[law])


@pytest.mark.parametrize("bad", [{"minimum": 0}, {"colluding": 1.0}], ids=str)
def test_a_policy_states_numbers_that_make_sense(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        Policy(**bad)


def test_noise_of_all_parties_that_could_wrap_is_refused() -> None:
    loud = NoiseShare(law="skellam", parameter=2.0**58, minimum=5)
    query = replace(paid(GRADIENT, loud), grid=GRID)
    assert not fits(query, TASK)
    with pytest.raises(QueryRefused, match="wrap around"):
        check_query(query, TASK, Policy())
    assert fits(replace(query, grid=WIDE), TASK)
    with pytest.raises(ValueError, match="does not fit 64 bits"):
        grid_of(step=1.0, bound=2.0**63, parties=2)


@pytest.mark.parametrize(
    ("query", "changes", "reason"),
    [
        (GRADIENT, {"event": None}, "event must be given"),
    ],
    ids=["unpaid"],
)
def test_a_share_where_no_theorem_covers_it_is_no_query(
    query: Query, changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        replace(query, share=SHARES["skellam"], **changes)


def test_an_exact_sum_has_no_share() -> None:
    with pytest.raises(ValueError, match="share must be None"):
        RiskGradientQuery(
            run="r",
            round=0,
            grid=WIDE,
            event=EVENT,
            theta=np.zeros(WIDTH),
            exchange=0,
            share=SHARES["skellam"],
        )


# --- Too few parties, and asking again ----------------------------------------------------------


def test_a_sum_of_too_few_parties_is_not_opened() -> None:
    require_minimum(SHARED["skellam"], 4)
    require_minimum(GRADIENT, 1)
    with pytest.raises(RuntimeError, match=r"at least 4 parties.*Nothing was released"):
        require_minimum(SHARED["skellam"], 3)


def system(index: int) -> Party:
    """A party that draws from the operating system, as in a deployment."""
    return Party(DATA.party(index), task=TASK, sampling=lambda _: RandomStream.from_os())


@every_law
def test_the_same_query_again_gets_the_same_integers(law: str) -> None:
    one = system(0)
    first = one.answer(SHARED[law])
    kept = first.copy()
    first += 1  # as masking in place would
    assert (one.answer(SHARED[law]) == kept).all()
    assert (system(0).answer(SHARED[law]) != kept).any()


def test_another_query_for_an_answered_round_is_refused() -> None:
    """Two draws on one round: their mean would carry less noise than was paid for."""
    one = system(0)
    one.answer(replace(SHARED["skellam"], round=5))
    for query in (
        replace(SHARED["skellam"], round=5, theta=np.full(WIDTH, 1e-3)),
        replace(SHARED["discrete-gaussian"], round=5),
        replace(SHARED["skellam"], round=4),
    ):
        with pytest.raises(QueryRefused, match="release 5 of this run was answered already"):
            one.answer(query)
    one.answer(replace(SHARED["skellam"], round=6))
    one.answer(replace(SHARED["skellam"], run="another"))


def test_a_refused_query_uses_up_nothing() -> None:
    one = system(0)
    with pytest.raises(QueryRefused):
        one.answer(replace(SHARED["skellam"], event=EVENT))
    assert one.answer(SHARED["skellam"]).shape == (WIDTH,)
