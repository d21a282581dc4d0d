"""The noise that a party's policy asks for: laws, amplification, shares and one scale for all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedpriv.federation.deployed.guard import check_terms, relative_noise
from fedpriv.federation.party.guard import QueryRefused
from fedpriv.federation.protocol.level import Protection
from fedpriv.federation.queries.bounds import share_mechanism
from fedpriv.federation.queries.kinds import ErmQuery, GradientQuery, RiskGradientQuery
from fedpriv.federation.queries.local_noise import LocalNoise
from fedpriv.privacy.accountants import GdpAccountant
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import (
    ApproximateEvent,
    BoundedRangeEvent,
    DistributedGaussianEvent,
    Event,
    GaussianEvent,
    LaplaceEvent,
    PoissonGaussianEvent,
    PoissonPureEvent,
    PureEvent,
    SkellamEvent,
    ZcdpEvent,
)
from fedpriv.privacy.mechanisms.laws import LAWS
from fedpriv.privacy.mechanisms.shares import NoiseShare
from fedpriv.privacy.planning.objective.objective import OBJECTIVE_LAWS, ObjectiveNoise
from fedpriv.privacy.unit import Unit
from fedpriv.secagg import FixedPoint
from tests.federation.deployed.policies import (
    ENGAGEMENT,
    ERM,
    EVENT,
    GRID,
    POLICY,
    QUERY,
    TASK,
    charged,
    refused,
)
from tests.federation.worlds import linear_task

R, A = Adjacency.REPLACE_ONE, Adjacency.ADD_REMOVE


@pytest.mark.parametrize("base", [QUERY, ERM], ids=["gradient", "erm"])
def test_a_law_that_is_for_study_is_refused(base: GradientQuery | ErmQuery) -> None:
    """Its event is honest about √d, but what it states is not what it gives."""
    for law in LAWS:
        local = LocalNoise(law=law, relative_noise=20.0, adjacency=R)
        mechanism = replace(base, local=local).local_mechanism(TASK, TASK.smallest)
        assert mechanism is not None
        query = replace(base, local=local, event=mechanism.event())
        if law.startswith("unsound"):
            refused(query, f"the law '{law}' is for study")
        else:
            charged(query)


def test_a_perturbed_objective_for_study_is_refused() -> None:
    for law in OBJECTIVE_LAWS:
        delta = 1e-6 if law == "gaussian" else 0.0
        objective = ObjectiveNoise(law=law, epsilon=0.05, delta=delta, adjacency=R)
        query = replace(ERM, objective=objective)
        query = replace(query, event=query.local_event(TASK))
        if law.startswith("unsound"):
            refused(query, f"the law '{law}' is for study")
        else:
            charged(query)


def test_a_minimiser_that_the_records_decide_the_steps_to_is_refused() -> None:
    """M/λ is the server's choice; beyond 10⁷ whether a solver ends is a matter of the records."""
    charged(replace(ERM, regulariser=1e-6, tolerance=0.01))
    refused(replace(ERM, regulariser=1e-9, tolerance=0.01), "better conditioned: M/λ is 2.5e\\+08")


def test_smaller_noise_is_refused_to_the_last_bit() -> None:
    charged(replace(QUERY, event=replace(EVENT, relative_noise=0.5)))
    less = replace(EVENT, relative_noise=float(np.nextafter(0.5, 0.0)))
    refused(replace(QUERY, event=less), "noise of 0.5 sensitivities, and .* insists on 0.5")


def test_a_query_without_an_event_is_refused() -> None:
    refused(replace(QUERY, event=None), "states no privacy event")


def test_an_event_under_another_adjacency_than_the_budget_is_refused() -> None:
    refused(replace(QUERY, event=replace(EVENT, adjacency=A)), "stated under 'add-remove'")
    charged(replace(QUERY, event=replace(EVENT, adjacency=A)), adjacency=A)


def test_an_amplification_by_more_sampling_than_is_asked_for_is_refused() -> None:
    """A server that states q = 0.01 and takes every record would pay a hundredth."""
    event = PoissonGaussianEvent(relative_noise=2.0, sampling_rate=0.01, adjacency=A)
    sampled = replace(QUERY, event=event, sampling_rate=0.01)
    assert charged(sampled, adjacency=A) == event
    refused(replace(sampled, sampling_rate=0.02), "counts on a sample of 0.01", adjacency=A)
    refused(replace(sampled, sampling_rate=1.0), "counts on a sample of 0.01", adjacency=A)
    whole = RiskGradientQuery(
        run=QUERY.run, round=0, grid=GRID, event=event, theta=np.zeros(3), exchange=0, headroom=2
    )
    refused(whole, "states 'poisson-gaussian'", adjacency=A)


def test_less_amplification_than_there_was_is_accepted() -> None:
    event = GaussianEvent(relative_noise=2.0, adjacency=A)
    charged(replace(QUERY, event=event, sampling_rate=0.01), adjacency=A)


def test_an_answer_weighted_by_size_needs_replace_one() -> None:
    event = replace(EVENT, adjacency=A)
    refused(replace(ERM, event=event), "must be 'replace-one'", adjacency=A)
    refused(replace(QUERY, event=event, weights="equal"), "must be 'replace-one'", adjacency=A)


def test_noise_at_the_server_is_refused_by_a_party_that_does_not_trust_it() -> None:
    refused(QUERY, "its noise at the server", noise_at="parties")
    refused(ERM, "its noise at the server", noise_at="parties")


def test_noise_of_the_partys_own_is_accepted_and_its_event_recomputed() -> None:
    local = LocalNoise(law="gaussian", relative_noise=2.0, adjacency=R)
    query = replace(QUERY, local=local)
    assert charged(query, noise_at="parties") == EVENT
    more = replace(EVENT, relative_noise=2.0001)
    refused(replace(query, event=more), "not that of the noise", noise_at="parties")


SHARE = NoiseShare(law="skellam", parameter=1e14, minimum=3, colluders=1)


def shared(share: NoiseShare = SHARE, **changes: Any) -> GradientQuery:
    """A query with shares of noise and their true event."""
    stated = replace(QUERY, share=share, **changes)
    mechanism = share_mechanism(stated, TASK)
    assert mechanism is not None
    return replace(stated, event=mechanism.event())


def test_the_event_of_shares_is_recomputed_by_the_party() -> None:
    query = shared()
    assert charged(query, noise_at="parties") == query.event
    assert isinstance(query.event, SkellamEvent)
    for tampered in (
        replace(query.event, variance=2 * query.event.variance),
        replace(query.event, l2_sensitivity=query.event.l2_sensitivity / 2),
        EVENT,
    ):
        refused(replace(query, event=tampered), "not that of the shares", noise_at="parties")


def test_shares_that_claim_a_clip_other_than_the_querys_own_are_refused() -> None:
    """The event of C = 1/2 beside a query that clips at 1: half of the sensitivity."""
    half = shared(clip_norm=0.5)
    refused(replace(half, clip_norm=1.0), "not that of the shares", noise_at="parties")


def test_shares_sized_for_other_sizes_than_the_rosters_are_refused() -> None:
    """A server that lies about n_j has another sensitivity of an average of minimisers."""
    share = NoiseShare(law="skellam", parameter=1e14, minimum=3, colluders=1)
    lie = linear_task((4000, 2500, 6000), 3, regulariser=0.1)
    stated = replace(ERM, share=share)
    for task, honest in ((TASK, True), (lie, False)):
        mechanism = share_mechanism(stated, task)
        assert mechanism is not None
        query = replace(stated, event=mechanism.event())
        if honest:
            charged(query, noise_at="parties")
        else:
            refused(query, "not that of the shares", noise_at="parties")


def test_shares_for_fewer_colluders_than_the_party_fears_are_refused() -> None:
    engagement = replace(ENGAGEMENT, protection=Protection(corrupt=0.4))
    for colluders, message in ((0, "sized for 0 colluders"), (1, None)):
        query = shared(replace(SHARE, colluders=colluders))
        policy = replace(POLICY, colluding=0.34, noise_at="parties")
        if message is None:
            check_terms(query, engagement, policy, R, Unit.RECORD)
        else:
            with pytest.raises(QueryRefused, match=message):
                check_terms(query, engagement, policy, R, Unit.RECORD)


def test_a_sum_that_could_wrap_around_is_refused() -> None:
    refused(replace(QUERY, grid=FixedPoint(step=2.0**-40, bits=32)), "wrap around")


@pytest.mark.parametrize(
    "event",
    [
        GaussianEvent(relative_noise=4.0, adjacency=R),
        PoissonGaussianEvent(relative_noise=4.0, sampling_rate=0.1, adjacency=A),
        LaplaceEvent(relative_noise=4.0, adjacency=R),
        PureEvent(epsilon=0.25, adjacency=R),
        PoissonPureEvent(epsilon=0.25, sampling_rate=0.1, adjacency=A),
        BoundedRangeEvent(epsilon=0.25, adjacency=R),
        ApproximateEvent(epsilon=0.25, delta=1e-6, adjacency=R),
        ZcdpEvent(rho=1 / 32, adjacency=R),
        SkellamEvent(variance=64.0, l1_sensitivity=3.0, l2_sensitivity=2.0, adjacency=R),
        DistributedGaussianEvent(
            shares=4,
            share_stddev=4.0,
            l1_sensitivity=3.0,
            l2_sensitivity=2.0,
            dimension=1,
            adjacency=R,
        ),
    ],
    ids=lambda event: event.kind,
)
def test_every_kind_of_event_has_its_noise_on_one_scale(event: Event) -> None:
    assert relative_noise(event) == pytest.approx(4.0, rel=1e-12)


def test_noise_on_that_scale_is_what_the_accountant_charges_a_gaussian_for() -> None:
    assert GdpAccountant(adjacency=R).cost(EVENT) == pytest.approx(relative_noise(EVENT) ** -2)
