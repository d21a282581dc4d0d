"""The privacy statement as text, for people."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING

from fedpriv.privacy.planning.objective.objective import ObjectiveMechanism
from fedpriv.privacy.planning.objective.objective_fit import ObjectiveFitMechanism
from fedpriv.privacy.rounding import rounded_up
from fedpriv.privacy.statement.statement import SIMULATED, units_of
from fedpriv.privacy.unit import Unit, neighbours_in_words, sizes_are_public

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fedpriv.privacy.statement.statement import Statement

_WIDTH = 96


def to_text(statement: Statement) -> str:
    """The whole statement; the first line of a simulation says that it is one."""
    sections = [
        ("Guarantee", _guarantee(statement)),
        ("How it was computed", _accounting(statement)),
        ("What was released, and what is not protected", _released(statement)),
        ("Who had to be trusted", statement.sees),
        ("Randomness and arithmetic", _randomness(statement)),
        ("Budget of the data set", _ledger(statement)),
        ("Not covered", statement.not_covered),
    ]
    lines = [SIMULATED] if statement.facts.simulated else []
    lines.append(f"PRIVACY STATEMENT   run {statement.facts.run}   fedpriv {statement.version}")
    if statement.facts.date:
        lines.append(f"Date: {statement.facts.date}")
    if statement.warnings:
        lines += ["", "WARNINGS", *_bullets(statement.warnings)]
    for number, (title, body) in enumerate(sections, start=1):
        lines += ["", f"{number}. {title}", *_bullets(body)]
    if statement.facts.coefficients:
        lines += ["", f"{len(sections) + 1}. Coefficients, from the released numbers alone"]
        lines += [f"   {line}" for line in statement.facts.coefficients]
    lines += ["", "Signed"]
    lines += [f"   {role:<18} ____________________   {'_' * 12}" for role in _ROLES]
    return "\n".join(lines) + "\n"


_CLIPPED = {
    Unit.RECORD: "each record's gradient",
    Unit.PERSON: "the sum of each person's gradients at one party",
    Unit.PARTY: "each party's update",
}
_ROLES = ("privacy officer", "data owner", "operator")


def _guarantee(statement: Statement) -> list[str]:
    plan, facts = statement.plan, statement.facts
    epsilon, advantage = rounded_up(statement.epsilon), rounded_up(statement.advantage)
    lines = [
        (
            f"unit: {_protected(statement)} of {facts.data!r}; adjacency: {plan.adjacency.value} "
            f"({neighbours_in_words(plan.unit, plan.adjacency)})"
        ),
        (
            f"(epsilon, delta) = ({epsilon}, {rounded_up(statement.delta)}), within a budget of "
            f"{plan.budget}"
        ),
        f"delta is {rounded_up(statement.delta_times_units, 2)} of 1/N, {_number(statement)}",
        _for_a_person(statement),
        f"an attacker's advantage over guessing is at most {advantage} (0 is blind, 1 is sure)",
    ]
    if statement.gdp_mu is not None:
        exactly = "exactly " if plan.gdp_exact else ""
        lines.append(f"{exactly}mu-GDP with mu = {rounded_up(statement.gdp_mu, 6)}")
    if statement.zcdp_rho is not None:
        lines.append(f"rho-zCDP with rho = {rounded_up(statement.zcdp_rho, 6)}")
    if facts.audit_epsilon is not None:
        lines.append(
            f"measured: an audit of this implementation found epsilon >= {facts.audit_epsilon:g}, "
            "with a confidence of 95 % or more; a lower bound, which proves a fault or nothing"
        )
    return lines


def _protected(statement: Statement) -> str:
    """Whose privacy is protected, with the bounds that were declared of a person."""
    facts, unit = statement.facts, statement.plan.unit
    if unit is not Unit.PERSON:
        return unit.words
    most = "any number" if facts.person_records is None else f"at most {facts.person_records}"
    parties = f"{facts.person_parties} part{'y' if facts.person_parties == 1 else 'ies'}"
    return f"{unit.words} ({most} at one party, at no more than {parties})"


def _number(statement: Statement) -> str:
    """N, and whether it tells anything about the records."""
    plan = statement.plan
    number = f"N = {units_of(plan)} {'parties' if plan.unit is Unit.PARTY else plan.unit.counted}"
    if statement.facts.simulated:  # it counts the records, whatever the adjacency
        return number
    if plan.unit is Unit.PARTY or sizes_are_public(plan.unit, plan.adjacency):
        return f"{number}, a number that is public"
    return (
        f"{number}, a number that was declared beforehand; the true one is protected, and nothing "
        "was computed from it"
    )


def _for_a_person(statement: Statement) -> str:
    person, most = statement.per_person, statement.facts.records_per_person
    loss = f"({rounded_up(person.epsilon)}, {rounded_up(person.delta)})"
    match statement.plan.unit:
        case Unit.RECORD:
            return f"for a person with {_at_most(most)}, which nothing checks: {loss}"
        case Unit.PERSON:
            return f"for a person {loss}: that is the unit"
        case Unit.PARTY:
            return (
                f"for a person with {_at_most(most)}, at no more parties than that, which nothing "
                f"checks: {loss}"
            )


def _at_most(records: int) -> str:
    return "one record" if records == 1 else f"at most {records} records"


def _accounting(statement: Statement) -> list[str]:
    plan, facts = statement.plan, statement.facts
    least, most = plan.least_rate, plan.sampling_rate
    rate = f"rate {most:g}" if least == most else f"rates {least:g} to {most:g}"
    lines = [
        f"strategy: {plan.strategy}; {_count(statement)} of {plan.size_in_words}",
        f"accountant: {plan.accountant} ({statement.accountant_version})",
        f"mechanism: {', '.join(plan.laws)}; standard deviation of the noise {_noise(statement)}",
        (
            f"parties: {plan.parties}, the smallest counted as {plan.smallest_party} "
            f"{plan.unit.counted}"
        ),
        f"sampling assumed: {plan.sampler}, {rate}; actual: {facts.sampler}",
        f"hyper-parameter tuning: {facts.tuning}",
    ]
    lines += [f"code that is not fedpriv's: {guest}" for guest in facts.guests]
    if facts.guests:
        lines.append("questions and noise are fedpriv's own; what that code does was not proved")
    if plan.clip_norm is not None:
        lines.insert(3, f"{_CLIPPED[plan.unit]} is clipped to norm {plan.clip_norm:g}")
    return lines


def _noise(statement: Statement) -> str:
    """How much noise is on what: objective perturbation has it in several places."""
    plan = statement.plan
    perturbed = next((m for m in plan.mechanisms if isinstance(m, ObjectiveMechanism)), None)
    if perturbed is None:
        what = "minimiser" if _joint(statement) else "sum"
        return f"on a coordinate of the {what}: {plan.noise_in_words}"
    places = [
        f"on a coordinate of the linear term in the objective: {plan.noise_in_words}",
        f"of the minimiser found: {perturbed.output.noise_stddev:.6g}",
    ]
    if isinstance(perturbed, ObjectiveFitMechanism):
        places.append(f"of the Hessian there: {perturbed.hessian.noise_stddev:.6g}")
    return ", ".join(places)


def _joint(statement: Statement) -> bool:
    """Whether it is of a joint fit: the end of it gets noise, and no sum on the way."""
    return bool(statement.trust.server_also_sees)


def _count(statement: Statement) -> str:
    made, planned = statement.releases, statement.plan.rounds
    if made != planned:
        return f"{made} of {planned} planned releases"
    return f"{made} release{'s' if made != 1 else ''}"


def _released(statement: Statement) -> list[str]:
    plan = statement.plan
    return [
        f"each party is asked for {plan.query}",
        f"released: {plan.released}",
        *((statement.facts.outcome,) if statement.facts.outcome else ()),
        *(f"not protected: {line}" for line in statement.unprotected),
        *(() if statement.facts.metrics_published else ("no metric on party data was published",)),
    ]


def _randomness(statement: Statement) -> list[str]:
    facts = statement.facts
    source = (
        "noise: AES-256-CTR keyed by the operating system; no seed"
        if facts.randomness == "operating system"
        else "noise: seeded, so that the run can be repeated; anyone with the seed can remove it"
    )
    what, them = ("the minimiser is in", "it") if _joint(statement) else ("sums are", "them")
    grid = f"{what} integers on {statement.plan.grid_in_words} until integer noise is on {them}"
    return [
        source,
        grid,
        *dict.fromkeys(f"{m.title}: {m.precision}" for m in statement.plan.mechanisms),
    ]


def _ledger(statement: Statement) -> list[str]:
    ledger = statement.ledger
    if ledger is None:
        return ["no ledger"]
    return [
        f"budget of the data set: ({ledger.budget_epsilon:g}, {ledger.budget_delta:g})",
        f"spent by other runs before this one: epsilon = {rounded_up(ledger.spent_before_epsilon)}",
        f"ledger: {ledger.rows} rows, head {ledger.head}",
    ]


def _bullets(lines: Iterable[str]) -> list[str]:
    return [
        fill(
            line, _WIDTH, initial_indent="   - ", subsequent_indent="     ", break_on_hyphens=False
        )
        for line in lines
    ]
