"""Written events: reading back how a ledger, a query or a statement recorded a release."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

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


def event_from_dict(values: dict[str, Any]) -> Event:
    """Read back what `Event.to_dict` wrote; an unknown kind or field is refused."""
    known = {
        cls.kind: cls
        for cls in (
            GaussianEvent,
            PoissonGaussianEvent,
            PoissonPartsEvent,
            LaplaceEvent,
            PureEvent,
            PoissonPureEvent,
            BoundedRangeEvent,
            ZcdpEvent,
            SkellamEvent,
            PoissonSkellamEvent,
            DistributedGaussianEvent,
            ApproximateEvent,
            TuningEvent,
        )
    }
    kind = values.get("kind")
    if kind not in known:
        raise ValueError(
            f"event kind must be one of {', '.join(known)}; got {kind!r}. "
            "A newer fedpriv may have written it."
        )
    rest = {name: value for name, value in values.items() if name != "kind"}
    expected = {field.name for field in fields(known[kind])}
    if set(rest) != expected:
        older = (
            " It was written before events had a unit." if expected - {*rest} == {"unit"} else ""
        )
        raise ValueError(
            f"event {kind!r} must have exactly the fields {sorted(expected)}, got {sorted(rest)}."
            f"{older}"
        )
    return known[kind](**rest)
