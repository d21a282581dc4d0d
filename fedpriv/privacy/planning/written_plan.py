"""A written plan, as in plan.json and statements: the events that its noise costs.

A reader of a plan and of the events charged to ledgers can check that they belong together: less
noise than was paid for shows here. A written plan has exactly the keys of its kind: another key
could change what is read, or be read by people alone. For the same reason no text may stand in
place of a number.

For a perturbed objective the plan states what the whole release costs. The noise that this needs
follows from the loss and the regulariser, which a plan does not name: here its parts are only
checked for the right kind, and deployed parties compare them with the experiment before they sign.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from fedpriv._validate import require_count, require_positive, require_rate
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
from fedpriv.privacy.planning.objective.objective import ObjectiveMechanism
from fedpriv.privacy.planning.objective.objective_fit import ObjectiveFitMechanism
from fedpriv.privacy.planning.plan import Plan, sampled

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
_FACTS = {field.name for field in fields(Plan)} - {"mechanisms"} | {"adjacency", "unit"}
_KINDS = (
    _FACTS | {"mechanisms"},
    _FACTS | {"mechanisms", "rates"},
    _FACTS | {"mechanisms", "matrix_width"},
    _FACTS | {"spent", "limit", "releases", "made"},
)
_STATED = (ObjectiveMechanism.name, ObjectiveFitMechanism.name)
_OF_OBJECTIVES = (GaussianMechanism, L2LaplaceMechanism)  # laws of b, and of the output noise
_TEXTS = ("name", "part", "adjacency", "unit")
_NESTED = {field.name for kind in _KNOWN for field in fields(kind)}
_OF_SHARES = {field.name for field in fields(NoiseShare)}


def require_written(plan: Mapping[str, Any]) -> None:
    """Refuse a plan that `Plan.to_dict` cannot have written.

    Raises:
        ValueError: A key is unknown, or missing in a plan of its kind, or its value is impossible.
    """
    near = min(_KINDS, key=lambda known: len(known ^ set(plan)))
    if wrong := near ^ set(plan):
        raise ValueError(f"its plan has a key that is not known, or lacks one: {min(wrong)!r}.")
    if set(plan["budget"]) != {"epsilon", "delta"}:
        raise ValueError("the budget of its plan must be epsilon and delta, and nothing else.")
    _require_facts(plan)
    beside = {"name", "part" if "made" in plan else "count"}
    for written, _ in releases_of(plan):
        if set(written) != beside | {field.name for field in fields(kind_of(written))}:
            raise ValueError(f"the noise {written['name']!r} of its plan has another key.")
        for name, part in written.items():
            if isinstance(part, dict):
                _require_part(part, written)
            elif not isinstance(part, _type_of(name)) or (
                isinstance(part, bool) and name != "monotone"
            ):
                raise ValueError(f"{name} of the noise {written['name']!r} is stated as {part!r}.")


def _require_facts(plan: Mapping[str, Any]) -> None:
    """Require numbers and texts where they belong."""
    counts = ("parties", "records", "smallest_party", "dimension", "parts", "matrix_width")
    require_count(**{name: plan[name] for name in counts if name in plan})
    require_positive(step=plan["step"])
    if plan["clip_norm"] is not None:
        require_positive(clip_norm=plan["clip_norm"])
    rates = plan.get("rates", [])
    require_rate(sampling_rate=plan["sampling_rate"])
    require_rate(**{f"rates[{index}]": rate for index, rate in enumerate(rates)})
    if not isinstance(plan["query"], str):
        raise ValueError("what parties were asked for must be text.")


def _type_of(name: str) -> type[str | bool | int] | tuple[type, ...]:
    """The type of a value in the noise of a release."""
    if name in _TEXTS:
        return str
    return {"monotone": bool, "count": int}.get(name, (int, float))


def _require_part(part: Mapping[str, Any], whole: Mapping[str, Any]) -> None:
    """Refuse an invalid part of a noise; for a perturbed objective, a part for other neighbours."""
    if not set(part) <= _NESTED | _OF_SHARES:
        raise ValueError(f"a part of the noise {whole['name']!r} has an unknown key.")
    if whole["name"] not in _STATED:
        return
    kinds = [k for k in _OF_OBJECTIVES if {field.name for field in fields(k)} == set(part)]
    if len(kinds) != 1:
        raise ValueError(f"a part of the noise {whole['name']!r} is of no law that it may have.")
    kinds[0](**part)
    if any(part[term] != whole[term] for term in ("adjacency", "unit")):
        raise ValueError(f"a part of the noise {whole['name']!r} is for others than the whole.")


def stated_noise(plan: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The noise of a written plan that states its cost, but not why."""
    return [written for written, _ in releases_of(plan) if written["name"] in _STATED]


def least_rate_of(plan: Mapping[str, Any]) -> float:
    """The least sampling rate of a release: `Plan.least_rate`."""
    return float(min(plan["rates"]) if "rates" in plan else plan["sampling_rate"])


def events_of(plan: Mapping[str, Any]) -> Counter[Event] | None:
    """How often each event occurs in a plan that was written by `Plan.to_dict`.

    None if the plan does not tell: each round has its own sampling rate and its own noise, and
    which belong together is not written.

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
    """The noise of every release of a written plan, with the number of releases that have it.

    Adaptively chosen noise is listed release by release, selections included.
    """
    if "made" in plan:
        return [(each, 1) for each in plan["made"]]
    return [(each, int(each["count"])) for each in plan["mechanisms"]]


def _event(written: Mapping[str, Any]) -> Event:
    """What one release with this noise costs."""
    if written["name"] in _STATED:  # their cost follows from what they state
        stated = {name: written[name] for name in ("adjacency", "unit", "epsilon")}
        delta = written["delta"]
        return PureEvent(**stated) if delta == 0 else ApproximateEvent(**stated, delta=delta)
    kind = kind_of(written)
    values = {field.name: written[field.name] for field in fields(kind)}
    if "share" in values:
        values["share"] = NoiseShare(**values["share"])
    return kind(**values).event()


def kind_of(written: Mapping[str, Any]) -> type[Mechanism | Selection]:
    """The kind of mechanism, or selection, of a written one; `ValueError` if it is neither."""
    for kind in (*_KNOWN, ObjectiveMechanism, ObjectiveFitMechanism):
        if kind.name == written["name"]:
            return kind
    raise ValueError(f"{written['name']!r} is not a mechanism of a plan with a guarantee.")
