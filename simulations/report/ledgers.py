"""Extract of the ledger for a report: budget, charges and the head of the chain, as published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedpriv.privacy.rounding import rounded_up
from fedpriv.simulations.report.parts import Cell, Section, Table, facts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fedpriv.privacy.statement.signed import PartySignature
    from fedpriv.simulations.report.results import RunFiles


_WORDS = (
    "Every release was reserved in the ledger of the data set before it was computed. Each row has "
    "the hash of the previous one: with the head and `fedpriv ledger verify` you can prove that no "
    "earlier row was changed. This page checks no signatures: `fedpriv verify` does."
)


def ledger_section(runs: Sequence[RunFiles]) -> Section:
    """What the statements say of the ledgers that paid; the ledger itself stays with its owner."""
    tables = []
    for place, run in enumerate(runs):
        ledger = run.statement.get("ledger")
        if ledger is None:
            continue
        number = f"-{place + 1}" if len(runs) > 1 else ""
        tables.append(_summary(run.name, ledger, number))
        tables.append(_charges(run, number))
        if run.signatures:
            tables.append(_signatures(run.signatures, number))
    if not tables:
        return Section(id="ledger", title="Ledger")
    return Section(
        id="ledger",
        title="Ledger",
        words=(_WORDS,),
        tables=tuple(tables),
    )


def _summary(name: str, ledger: Mapping[str, Any], number: str) -> Table:
    return facts(
        f"ledger{number}",
        f"Ledger when the statement of {name} was written",
        {
            "budget ε": Cell(text=f"{ledger['budget_epsilon']:g}", value=ledger["budget_epsilon"]),
            "budget δ": Cell(text=f"{ledger['budget_delta']:g}", value=ledger["budget_delta"]),
            "ε spent by other runs before": Cell(
                text=rounded_up(ledger["spent_before_epsilon"]),
                value=ledger["spent_before_epsilon"],
            ),
            "rows": Cell(text=str(ledger["rows"]), value=ledger["rows"]),
            "head of the chain": Cell(text=str(ledger["head"]), value=str(ledger["head"])),
        },
    )


def _charges(run: RunFiles, number: str) -> Table:
    """What the run was charged for: events, equal ones together."""
    rows = []
    for event, count in run.statement.get("releases", []):
        terms = ("kind", "adjacency", "unit")
        numbers = {key: value for key, value in event.items() if key not in terms}
        said = ", ".join(f"{key} = {_short(value)}" for key, value in numbers.items())
        rows.append(
            (
                Cell(text=str(count), value=count),
                Cell(text=str(event["kind"]), value=str(event["kind"])),
                Cell(text=f"{event['unit']}, {event['adjacency']}"),
                Cell(text=said),
            )
        )
    return Table(
        id=f"charges{number}",
        title=f"What {run.name} was charged for",
        columns=("releases", "event", "unit, adjacency", "terms"),
        numeric=(True, False, False, False),
        rows=tuple(rows),
    )


def _short(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _signatures(signatures: Sequence[PartySignature], number: str) -> Table:
    rows = tuple(
        (
            Cell(text=each.name, value=each.name),
            Cell(text=str(each.releases), value=each.releases),
            Cell(text=str(each.rows), value=each.rows),
            Cell(text=each.head, value=each.head),
        )
        for each in signatures
    )
    return Table(
        id=f"signatures{number}",
        title="Parties whose signatures are beside the statement, and the heads of their ledgers",
        columns=("party", "releases paid", "rows", "head of its ledger"),
        numeric=(False, True, True, False),
        rows=rows,
    )
