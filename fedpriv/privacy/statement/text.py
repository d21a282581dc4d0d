"""The privacy statement as text, for people."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING

from fedpriv.privacy.rounding import rounded_up
from fedpriv.privacy.statement.statement import SIMULATED

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
    lines += ["", "Signed"]
    lines += [f"   {role:<18} ____________________   {'_' * 12}" for role in _ROLES]
    return "\n".join(lines) + "\n"


_ROLES = ("privacy officer", "data owner", "operator")


def _guarantee(statement: Statement) -> list[str]:
    plan, facts = statement.plan, statement.facts
    relation, known = {
        "replace-one": (
            "exchanging one record for another at its place and its party",
            "a number that is public",
        ),
        "add-remove": (
            "adding or removing one record",
            (
                "a number that was declared beforehand; the true one is protected, and nothing "
                "was computed from it"
            ),
        ),
    }[plan.adjacency.value]
    number = f"N = {plan.records} records"
    if not facts.simulated:  # it counts the records, whatever the adjacency
        number += f", {known}"
    epsilon, person = rounded_up(statement.epsilon), statement.per_person
    advantage = rounded_up(statement.advantage)
    lines = [
        f"unit: one record of {facts.data!r}; adjacency: {plan.adjacency.value} ({relation})",
        (
            f"(epsilon, delta) = ({epsilon}, {rounded_up(statement.delta)}), within a budget of "
            f"{plan.budget}"
        ),
        f"delta is {rounded_up(statement.delta_times_records, 2)} of 1/N, {number}",
        (
            f"records of one person: at most {facts.records_per_person}, as declared; hence for a "
            f"person ({rounded_up(person.epsilon)}, {rounded_up(person.delta)})"
        ),
        f"an attacker's advantage over guessing is at most {advantage} (0 is blind, 1 is sure)",
    ]
    if statement.gdp_mu is not None:
        exactly = "exactly " if plan.gdp_exact else ""
        lines.append(f"{exactly}mu-GDP with mu = {rounded_up(statement.gdp_mu, 6)}")
    if statement.zcdp_rho is not None:
        lines.append(f"rho-zCDP with rho = {rounded_up(statement.zcdp_rho, 6)}")
    if facts.audit_epsilon is not None:
        lines.append(f"an audit of this implementation found epsilon >= {facts.audit_epsilon:g}")
    return lines


def _accounting(statement: Statement) -> list[str]:
    plan, facts = statement.plan, statement.facts
    assumed = "Poisson" if plan.sampling_rate < 1 else "full batch"
    lines = [
        (f"strategy: {plan.strategy}; {_count(statement)} of {plan.dimension} coordinates"),
        f"accountant: {plan.accountant} ({statement.accountant_version})",
        (
            f"mechanism: {', '.join(plan.laws)}; standard deviation of the noise on a coordinate "
            f"of the sum: {plan.noise_in_words}"
        ),
        f"parties: {plan.parties}, the smallest counted as {plan.smallest_party} records",
        f"sampling assumed: {assumed}, rate {plan.sampling_rate:g}; actual: {facts.sampler}",
        f"hyper-parameter tuning: {facts.tuning}",
    ]
    lines += [f"code that is not fedpriv's: {guest}" for guest in facts.guests]
    if facts.guests:
        lines.append("questions and noise are fedpriv's own; what that code does was not proved")
    if plan.clip_norm is not None:
        lines.insert(3, f"each record's gradient is clipped to norm {plan.clip_norm:g}")
    return lines


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
    return [
        source,
        f"sums are integers on a grid of {statement.plan.step:.3g} until integer noise is on them",
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
