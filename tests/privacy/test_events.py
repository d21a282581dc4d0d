"""Events: inert, validated, and written and read without loss."""

import json
from typing import Any

import pytest

from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import (
    ApproximateEvent,
    BoundedRangeEvent,
    DistributedGaussianEvent,
    Event,
    GaussianEvent,
    LaplaceEvent,
    PoissonGaussianEvent,
    PoissonPartsEvent,
    PoissonPureEvent,
    PoissonSkellamEvent,
    PureEvent,
    SkellamEvent,
    TuningEvent,
    ZcdpEvent,
)
from fedpriv.privacy.written_events import event_from_dict

A = Adjacency.ADD_REMOVE
EVENTS: list[Event] = [
    GaussianEvent(relative_noise=1.5, adjacency=Adjacency.REPLACE_ONE),
    PoissonGaussianEvent(relative_noise=1.5, sampling_rate=0.01, adjacency=A),
    PoissonPartsEvent(relative_noise=1.5, sampling_rate=0.01, parts=2, adjacency=A),
    LaplaceEvent(relative_noise=3, adjacency=A),
    PureEvent(epsilon=0.3, adjacency=A),
    PoissonPureEvent(epsilon=0.3, sampling_rate=0.1, adjacency=A),
    BoundedRangeEvent(epsilon=0.3, adjacency=A),
    ZcdpEvent(rho=0.02, adjacency=A),
    SkellamEvent(variance=100, l1_sensitivity=7, l2_sensitivity=3, adjacency=A),
    PoissonSkellamEvent(
        variance=100, l1_sensitivity=7, l2_sensitivity=3, sampling_rate=0.1, adjacency=A
    ),
    DistributedGaussianEvent(
        shares=9, share_stddev=4, l1_sensitivity=7, l2_sensitivity=3, dimension=5, adjacency=A
    ),
    ApproximateEvent(epsilon=0.3, delta=1e-6, adjacency=A),
    TuningEvent(base_mu=0.2, eta=0.5, gamma=0.1, adjacency=A),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: e.kind)
def test_an_event_survives_json(event: Event) -> None:
    assert event_from_dict(json.loads(json.dumps(event.to_dict()))) == event


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: e.kind)
def test_an_event_cannot_be_changed(event: Event) -> None:
    with pytest.raises(AttributeError):
        event.adjacency = Adjacency.REPLACE_ONE  # type: ignore[misc]


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: e.kind)
@pytest.mark.parametrize("bad", [0, -1, float("nan"), float("inf"), "1", None, True])
def test_every_number_of_an_event_must_be_positive_and_finite(event: Event, bad: Any) -> None:
    for name, value in event.to_dict().items():
        if name == "eta" and bad == 0 and bad is not False:  # the logarithmic law
            continue
        if isinstance(value, (int, float)):
            with pytest.raises(ValueError, match=f"{name} must"):
                event_from_dict({**event.to_dict(), name: bad})


@pytest.mark.parametrize("kind", [PoissonGaussianEvent, PoissonPureEvent])
def test_sampling_refuses_replace_one_and_says_what_to_do(kind: Any) -> None:
    parameters = {"relative_noise": 1} if kind is PoissonGaussianEvent else {"epsilon": 1}
    with pytest.raises(ValueError, match=r"adjacency must be 'add-remove'.*group privacy"):
        kind(**parameters, sampling_rate=0.5, adjacency="replace-one")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kind": "tomorrow"}, "event kind must be one of"),
        ({"kind": "pure", "epsilon": 1.0}, "must have exactly the fields"),
        (
            {"kind": "pure", "epsilon": 1.0, "adjacency": "none", "unit": "record"},
            "not a valid Adjacency",
        ),
        (
            {"kind": "pure", "epsilon": 1.0, "adjacency": "add-remove", "unit": "one"},
            "unit must be one of",
        ),
        (
            {
                "kind": "pure",
                "epsilon": 1.0,
                "adjacency": "add-remove",
                "unit": "record",
                "note": "",
            },
            "must have exactly the fields",
        ),
    ],
)
def test_an_unknown_event_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        event_from_dict(values)


def test_integer_sensitivities_must_be_consistent() -> None:
    with pytest.raises(ValueError, match="l1_sensitivity must be at least l2_sensitivity"):
        SkellamEvent(variance=1, l1_sensitivity=1, l2_sensitivity=2, adjacency=A)
    with pytest.raises(ValueError, match="l1_sensitivity must be at least l2_sensitivity"):
        DistributedGaussianEvent(
            shares=9, share_stddev=4, l1_sensitivity=1, l2_sensitivity=2, dimension=5, adjacency=A
        )


def test_a_count_of_shares_is_a_whole_number() -> None:
    (values,) = (e.to_dict() for e in EVENTS if isinstance(e, DistributedGaussianEvent))
    for name in ("shares", "dimension"):
        with pytest.raises(ValueError, match=f"{name} must be an integer"):
            event_from_dict({**values, name: 2.5})


def test_a_server_cannot_have_a_party_price_any_number_of_parts() -> None:
    with pytest.raises(ValueError, match="parts must be at most 1000"):
        PoissonPartsEvent(relative_noise=1.5, sampling_rate=0.01, parts=10**9, adjacency=A)
