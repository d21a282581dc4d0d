"""Statement read back from its values, so that text and registry entry can be written from them.

A statement has three forms: values, text, and an entry for a registry. Signatures are on the
values; people read the other two. Whoever has the values writes these again, and sees whether what
people are shown follows from what was signed.

Nothing is computed: numbers are as they are stated, and whether they are true is for others to find
out. So a plan here is one by its parts alone, and must not be run.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.conversions import PrivacyLoss
from fedpriv.privacy.mechanisms import GaussianMechanism, L2LaplaceMechanism, Mechanism
from fedpriv.privacy.mechanisms.shares import NoiseShare
from fedpriv.privacy.planning.adaptive_plan import AdaptivePlan
from fedpriv.privacy.planning.filters import fresh_filter
from fedpriv.privacy.planning.fixed_plan import FixedPlan
from fedpriv.privacy.planning.second_order import SecondOrderPlan
from fedpriv.privacy.planning.tuning.tuning import BestOfTrials, TuningPlan
from fedpriv.privacy.planning.written_plan import kind_of, releases_of
from fedpriv.privacy.schedules.growing import GrowingPlan
from fedpriv.privacy.statement.facts import LedgerFacts, RunFacts, TrustModel
from fedpriv.privacy.statement.statement import Statement
from fedpriv.privacy.trial_count import TrialCount
from fedpriv.privacy.unit import Unit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fedpriv.privacy.mechanisms.selection import Selection
    from fedpriv.privacy.planning.plan import Plan

_PARTS = (NoiseShare, TrialCount, GaussianMechanism, L2LaplaceMechanism)
_LISTS = ("guests", "assumptions")  # of JSON
_MOST_RELEASES = 10_000_000
_Made = TypeVar("_Made")


def read_values(values: Mapping[str, Any], *, coefficients: Sequence[str] = ()) -> Statement:
    """The statement that has these values.

    Args:
        values: What `Statement.to_dict` wrote.
        coefficients: The lines of the table of coefficients, which only the text has.

    Raises:
        ValueError: They are not what it writes. Others of the usual errors may come, too.
    """
    told, run = values["guarantee"], dict(values["run"])
    run |= {name: tuple(run[name]) for name in _LISTS}
    trust, ledger = values["trust"], values["ledger"]
    return Statement(
        plan=_plan(values["plan"]),
        facts=RunFacts(**run, coefficients=tuple(coefficients)),
        trust=TrustModel(**{each.name: trust[each.name] for each in fields(TrustModel)}),
        ledger=None if ledger is None else LedgerFacts(**ledger),
        version=values["fedpriv"],
        accountant_version=told["accountant_version"],
        epsilon=told["epsilon"],
        delta=told["delta"],
        per_person=PrivacyLoss(**told["per_person"]),
        delta_times_units=told["delta_times_units"],
        gdp_mu=told["gdp_mu"],
        zcdp_rho=told["zcdp_rho"],
        advantage=told["attack_advantage"],
        sees=tuple(trust["sees"]),
        unprotected=tuple(values["unprotected"]),
        not_covered=tuple(values["not_covered"]),
        warnings=tuple(values["warnings"]),
    )


def _plan(written: Mapping[str, Any]) -> Plan:
    kind = _plan_kind(written)
    apart = {"budget", "mechanisms", "filter", "made", "trials", "rates"}
    facts = {each.name: written[each.name] for each in fields(kind) if each.name not in apart}
    facts["budget"] = Budget(**written["budget"])
    if "made" in written:
        made = tuple((each["part"], _release(each)) for each in written["made"])
        additive = tuple(release for _, release in made if isinstance(release, Mechanism))
        held = fresh_filter(
            written["accountant"],
            budget=facts["budget"],
            adjacency=Adjacency(written["adjacency"]),
            unit=Unit(written["unit"]),
        )
        return _as_written(kind, **facts, mechanisms=additive, filter=held, made=made)
    facts["mechanisms"] = _mechanisms(written)
    if "rates" in written:
        facts["rates"] = tuple(written["rates"])
    if "trials" in written:
        facts["trials"] = tuple(
            _as_written(FixedPlan, step=each["step"], mechanisms=_mechanisms(each))
            for each in written["trials"]
        )
    return _as_written(kind, **facts)


def _plan_kind(written: Mapping[str, Any]) -> type[Plan]:
    """Every kind of plan writes a key of its own."""
    for key, kind in (
        ("made", AdaptivePlan),
        ("rates", GrowingPlan),
        ("matrix_width", SecondOrderPlan),
        ("trials", TuningPlan),
    ):
        if key in written:
            return kind
    return FixedPlan


def _as_written(kind: type[_Made], **parts: object) -> _Made:
    """A value of a frozen class by its parts, without what it would compute from them."""
    made = object.__new__(kind)
    for name, part in parts.items():
        object.__setattr__(made, name, part)
    return made


def _mechanisms(written: Mapping[str, Any]) -> tuple[Mechanism, ...]:
    releases = [(_release(each), count) for each, count in releases_of(written)]
    if sum(count for _, count in releases) > _MOST_RELEASES:
        raise ValueError(f"a plan to be read must have at most {_MOST_RELEASES} releases.")
    return tuple(each for each, n in releases for _ in range(n) if isinstance(each, Mechanism))


def _release(written: Mapping[str, Any]) -> Mechanism | Selection:
    """The noise of one release, or its selection."""
    name = written["name"]
    kind = BestOfTrials if name == BestOfTrials.name else kind_of(written)
    return kind(**{each.name: _part(written[each.name]) for each in fields(kind)})


def _part(value: Any) -> Any:
    """A part of a mechanism that is one of several numbers, known by their names."""
    if not isinstance(value, dict):
        return value
    for kind in _PARTS:
        if {each.name for each in fields(kind)} == set(value):
            return kind(**value)
    raise ValueError(f"no part of a mechanism has {', '.join(sorted(value))}.")
