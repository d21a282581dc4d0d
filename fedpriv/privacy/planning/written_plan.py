"""A written plan, as plan.json and statements have it: the events that its noise costs.

Whoever is shown a plan and the events that ledgers were charged can tell by it whether they belong
together: less noise than was paid for shows here.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from fedpriv.privacy.events import ApproximateEvent, Event, PureEvent
from fedpriv.privacy.mechanisms import (
    DiscreteGaussianMechanism,
    DiscreteLaplaceMechanism,
    GaussianMechanism,
    L1LaplaceMechanism,
    L2LaplaceMechanism,
    LaplaceMechanism,
    Mechanism,
    SkellamMechanism,
)
from fedpriv.privacy.mechanisms.selection import (
    ExponentialMechanism,
    ReportNoisyMax,
    Selection,
)
from fedpriv.privacy.mechanisms.shares import NoiseShare, SharedNoise
from fedpriv.privacy.planning.objective import ObjectiveMechanism
from fedpriv.privacy.planning.objective_fit import ObjectiveFitMechanism
from fedpriv.privacy.planning.plan import sampled

if TYPE_CHECKING:
    from collections.abc import Mapping

_KNOWN: tuple[type[Mechanism | Selection], ...] = (
    GaussianMechanism,
    L1LaplaceMechanism,
    L2LaplaceMechanism,
    LaplaceMechanism,
    DiscreteGaussianMechanism,
    DiscreteLaplaceMechanism,
    SkellamMechanism,
    SharedNoise,
    ExponentialMechanism,
    ReportNoisyMax,
)

_STATED = (ObjectiveMechanism.name, ObjectiveFitMechanism.name)


def events_of(plan: Mapping[str, Any]) -> Counter[Event] | None:
    """How often each event occurs in a plan that was written by `Plan.to_dict`.

    None if the plan does not tell: each round has a sampling rate of its own and noise of its own,
    and which go together is not written.

    Raises:
        ValueError: A mechanism is not known, or not possible.
        KeyError: A part is missing.
    """
    mechanisms = [(_event(each), count) for each, count in releases_of(plan)]
    rates = plan.get("rates")
    if rates is None:
        rate, parts = float(plan["sampling_rate"]), int(plan["parts"])
        found: Counter[Event] = Counter()
        for event, count in mechanisms:
            found[sampled(event, rate, parts=parts)] += count
        return found
    if len(mechanisms) != 1 or len(rates) != mechanisms[0][1]:
        return None
    return Counter(sampled(mechanisms[0][0], float(rate)) for rate in rates)


def releases_of(plan: Mapping[str, Any]) -> list[tuple[Mapping[str, Any], int]]:
    """The noise of every release of a written plan, with how many have it.

    Of noise that was chosen on the way every release stands for itself, selections among them.
    """
    if "made" in plan:
        return [(each, 1) for each in plan["made"]]
    return [(each, int(each["count"])) for each in plan["mechanisms"]]


def _event(written: Mapping[str, Any]) -> Event:
    """What one release with this noise costs."""
    if written["name"] in _STATED:  # their laws follow from what they state
        stated = {name: written[name] for name in ("adjacency", "unit", "epsilon")}
        delta = written["delta"]
        return PureEvent(**stated) if delta == 0 else ApproximateEvent(**stated, delta=delta)
    for kind in _KNOWN:
        if kind.name == written["name"]:
            values = {field.name: written[field.name] for field in fields(kind)}
            if "share" in values:
                values["share"] = NoiseShare(**values["share"])
            return kind(**values).event()
    raise ValueError(f"{written['name']!r} is no mechanism of a plan that promises something.")
