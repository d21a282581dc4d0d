"""The report of runs: of simulations in full, of releases only their outcome."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fedpriv.inference.coefficients import CoefficientTable
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.rounding import rounded_up
from fedpriv.privacy.statement.statement import SIMULATED
from fedpriv.privacy.unit import Unit
from fedpriv.simulations.compare.report import METRICS, bytes_text
from fedpriv.simulations.counted import parties_in_words
from fedpriv.simulations.report.curves import begun
from fedpriv.simulations.report.details import (
    audit_section,
    configuration_section,
    guest_words,
)
from fedpriv.simulations.report.exchanges import exchange_section
from fedpriv.simulations.report.guarantee import meaning
from fedpriv.simulations.report.ledgers import ledger_section
from fedpriv.simulations.report.parts import Cell, Document, Listing, Section, Table, Text, facts
from fedpriv.simulations.report.rounds import budget_figure, metric_figures, schedule_figure
from fedpriv.simulations.report.sizes import party_section

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fedpriv.simulations.report.results import RunFiles

RELEASED = "A release: privacy was spent."


def runs_document(runs: Sequence[RunFiles]) -> Document:
    """The report of one or more runs, all simulated or all released.

    Raises:
        ValueError: There are both: a page about a simulation shows what one about a release must
            not.
    """
    if len({run.simulated for run in runs}) > 1:
        raise ValueError(
            "RESULTS must be all simulations or all releases, got both: a page about simulations "
            "shows what a page about a release must not. Make two pages."
        )
    named = _named(runs)
    first = named[0]
    simulated = first.simulated
    several = len(named) > 1
    sections = (
        Section(
            id="figures",
            title="Metrics, round by round",
            words=_no_metrics(named),
            figures=tuple(metric_figures(named)),
        ),
        _table(named),
        _coefficients(named),
        _guarantee(named),
        _spending(named),
        _parties(named) if simulated else Section(id="parties", title="Parties"),
        exchange_section({run.name: [run.result] for run in named})
        if simulated
        else Section(id="secure-aggregation", title="Secure aggregation", words=_protected(named)),
        ledger_section(named),
        Section(
            id="statement",
            title="Statements" if several else "Statement",
            texts=tuple(
                Text(title=f"statement.txt of {run.name}", text=run.statement_text) for run in named
            ),
        ),
        audit_section(_audits(named)),
        configuration_section(
            *(run.configuration for run in named),
            machine=first.machine,
            seconds=sum(float(run.result["seconds"]) for run in named) if simulated else None,
        ),
    )
    return Document(
        kind="runs",
        title=str(first.result["experiment"]),
        status=f"{SIMULATED}." if simulated else RELEASED,
        simulated=simulated,
        version=str(first.result["fedpriv"]),
        question=_question(named),
        headline=_headline(named),
        facts=_facts(named),
        sections=sections,
    )


def _named(runs: Sequence[RunFiles]) -> list[RunFiles]:
    """The runs under names that differ: their labels, numbered where several have the same."""
    labels = [run.name for run in runs]
    if len(set(labels)) == len(labels):
        return list(runs)
    return [replace(run, name=f"{place}. {run.name}") for place, run in enumerate(runs, start=1)]


def _question(runs: Sequence[RunFiles]) -> str:
    told = []
    for run in runs:
        result = run.result
        counted = Unit(result["unit"] or "record").counted
        model = f"a {result['model']} model" if result["model"] else "a model"
        told.append(
            f"{model} on {result['data']}, of {parties_in_words(result['parties'])} and "
            f"{result['records']} {counted}, by {run.name}"
        )
    return f"{begun('; '.join(told))}."


def _headline(runs: Sequence[RunFiles]) -> str:
    """What came out, at its price."""
    done = "simulated" if runs[0].simulated else "released"
    if len(runs) > 1:
        known = [run.result["accuracy"] for run in runs if run.result["accuracy"] is not None]
        told = f"{len(runs)} runs were {done}"
        if known:
            low, high = 100 * min(known), 100 * max(known)
            told += f"; the accuracy on their test records is {low:.2f} to {high:.2f} %"
        return f"{told}."
    (run,) = runs
    result, price = run.result, _price(run)
    if result["accuracy"] is not None:
        return (
            f"With {run.name}, {100 * result['accuracy']:.2f} % of {result['test_records']} test "
            f"records are classified correctly, {price}."
        )
    if result["loss"] is not None:
        return (
            f"With {run.name} the loss on {result['test_records']} test records is "
            f"{result['loss']:.4g}, {price}."
        )
    return f"A model was {done} {price}."


def _price(run: RunFiles) -> str:
    result = run.result
    if result["epsilon"] is None:
        return "without any privacy guarantee"
    return (
        f"at ε ≤ {rounded_up(result['epsilon'])} and δ ≤ {rounded_up(result['delta'])} "
        f"({Unit(result['unit']).words}, {result['adjacency']})"
    )


def _facts(runs: Sequence[RunFiles]) -> Table:
    result = runs[0].result
    if len(runs) > 1:
        return facts("facts", "In short", {"runs": Cell(text=str(len(runs)), value=len(runs))})
    counted = Unit(result["unit"] or "record").counted
    entries = {
        "data": Cell(text=str(result["data"])),
        "strategy": Cell(text=str(result["label"])),
        "parties": _number(result["parties"]),
        counted: _number(result["records"]),
        "smallest party": _number(result["smallest_party"]),
        "rounds": _number(result["rounds"]),
    }
    if result["epsilon"] is not None:
        entries |= {
            "ε, at most": Cell(text=rounded_up(result["epsilon"]), value=result["epsilon"]),
            "δ, at most": Cell(text=rounded_up(result["delta"]), value=result["delta"]),
            "protected": Cell(text=f"{Unit(result['unit']).words}, {result['adjacency']}"),
        }
    entries["engine"] = Cell(text=f"{result['engine']}, {result['secure_aggregation']}")
    return facts("facts", "In short", entries)


def _number(value: int) -> Cell:
    return Cell(text=str(value), value=value)


def _no_metrics(runs: Sequence[RunFiles]) -> tuple[str, ...]:
    if all(run.result["loss"] is None for run in runs):
        return ("No metric was computed, because no test records are declared public.",)
    if any(run.simulated for run in runs):
        return ("On the common test set; exact, and so outside of any guarantee.",)
    return ("On test records that were declared public.",)


def _table(runs: Sequence[RunFiles]) -> Section:
    """One row per run: everything that it has a number for."""
    columns: dict[str, list[Cell]] = {"run": [Cell(text=r.name, value=r.name) for r in runs]}
    keys: dict[str, tuple[str, Callable[[Any], str]]] = {
        "ε, at most": ("epsilon", rounded_up),
        "accuracy %": ("accuracy", lambda v: f"{100 * v:.2f}"),
        "loss": ("loss", lambda v: f"{v:.4g}"),
        **{title: (key, lambda v: f"{v:.4g}") for title, key in METRICS.items()},
        "noise": ("noise_stddev", lambda v: f"{v:.3g}"),
        "clipped": ("clip_fraction", lambda v: f"{v:.1%}"),
        "rounds": ("rounds", str),
        "seconds": ("seconds", lambda v: f"{v:.2f}"),
        "sent": ("bytes", bytes_text),
    }
    if all((run.result.get("per_party") or {}).get("metric") != "rmse" for run in runs):
        keys |= {  # in percent, like the accuracy of all
            "worst party": ("worst_party", lambda v: f"{100 * v:.2f} %"),
            "gap": ("fairness_gap", lambda v: f"{100 * v:.2f} points"),
        }
    for title, (key, said) in keys.items():
        values = [run.result.get(key) for run in runs]
        if any(value is not None for value in values):
            columns[title] = [
                Cell(text="–" if value is None else said(value), value=value) for value in values
            ]
    if len(runs) == 1:
        entries = {title: cells[0] for title, cells in columns.items() if title != "run"}
        table = facts("settings", "All numbers of the run", entries)
    else:
        table = Table(
            id="settings",
            title="Every run",
            columns=tuple(columns),
            numeric=tuple(title != "run" for title in columns),
            rows=tuple(zip(*columns.values(), strict=True)),
            curves=tuple(run.name for run in runs),
            sortable=True,
        )
    return Section(id="table", title="Results", tables=(table,))


def _coefficients(runs: Sequence[RunFiles]) -> Section:
    known = [run for run in runs if run.result.get("coefficients")]
    return Section(
        id="coefficients",
        title="Coefficients",
        texts=tuple(
            Text(
                title=run.name,
                text="\n".join(CoefficientTable.from_dict(run.result["coefficients"]).lines()),
            )
            for run in known
        ),
    )


def _guarantee(runs: Sequence[RunFiles]) -> Section:
    words: list[str] = []
    lists: list[Listing] = []
    if runs[0].simulated:
        words.append(
            f"{SIMULATED}. What follows is what a release with these settings would guarantee."
        )
    elif len(runs) > 1:
        words.append(
            "The costs of several releases of the same people add up: each line below is about one "
            "run alone, and the ledger covers all of them."
        )
    for names, run in _by_promise(runs).items():
        prefix = f"{names}: " if len(runs) > 1 else ""
        told = run.statement.get("guarantee")
        if told is None:
            words.append(f"{prefix}{run.statement['reason']}.")
            continue
        unit, adjacency = Unit(told["unit"]), Adjacency(told["adjacency"])
        words.append(
            f"{prefix}(ε, δ)-differentially private with ε ≤ {rounded_up(told['epsilon'])} and "
            f"δ ≤ {rounded_up(told['delta'])}, for {unit.words}, under {adjacency.value} adjacency."
            " "
            + meaning(
                told["epsilon"],
                delta=told["delta"],
                unit=unit,
                adjacency=adjacency,
                proved=told["attack_advantage"],
            )
        )
        person = told["per_person"]
        if unit is Unit.RECORD and told["records_per_person"] > 1:
            words.append(
                f"{prefix}A person with {told['records_per_person']} records, the declared "
                f"maximum, has ({rounded_up(person['epsilon'])}, {rounded_up(person['delta'])})."
            )
        for title, items in (
            ("Read this first", run.statement["warnings"]),
            ("Who sees what, and had to be trusted", run.statement["trust"]["sees"]),
            ("Not protected", run.statement["unprotected"]),
            ("Not covered", run.statement["not_covered"]),
        ):
            if items:
                lists.append(Listing(title=f"{prefix}{title}", items=tuple(map(begun, items))))
    words += [word for run in runs for word in guest_words(run.result.get("guests") or [])]
    return Section(
        id="guarantee", title="What is guaranteed", words=tuple(words), lists=tuple(lists)
    )


def _by_promise(runs: Sequence[RunFiles]) -> dict[str, RunFiles]:
    """By the names of all runs that promise the same in the same words, one of them."""
    groups: dict[str, list[RunFiles]] = {}
    for run in runs:
        told = ("guarantee", "reason", "warnings", "trust", "unprotected", "not_covered")
        said = json.dumps([run.statement.get(key) for key in told], sort_keys=True)
        groups.setdefault(said, []).append(run)
    return {", ".join(run.name for run in group): group[0] for group in groups.values()}


def _spending(runs: Sequence[RunFiles]) -> Section:
    figures = tuple(f for f in (budget_figure(runs), schedule_figure(runs)) if f is not None)
    words = []
    for run in runs:
        plan = run.plan
        if plan is not None:
            schedule = run.result["options"].get("schedule")
            named = f", schedule {schedule}" if isinstance(schedule, str) else ""
            words.append(
                f"{run.name}: {plan['released']}. Budget ε = {plan['budget']['epsilon']:g}, "
                f"δ = {plan['budget']['delta']:g}, accountant {plan['accountant']}{named}."
            )
    return Section(id="budget", title="Schedule and budget", words=tuple(words), figures=figures)


def _parties(runs: Sequence[RunFiles]) -> Section:
    """Of the first run the sizes, and of all how well each party is served."""
    first = runs[0].result
    return party_section(
        first.get("party_sizes"),
        {run.name: run.result["per_party"] for run in runs if run.result.get("per_party")},
        {run.name: str(run.result["strategy"]) for run in runs},
        counted=Unit(first["unit"] or "record").counted,
        whose=f"{runs[0].name}: " if len(runs) > 1 else "",
    )


def _protected(runs: Sequence[RunFiles]) -> tuple[str, ...]:
    """Of a release: how sums were protected; what that cost stays with the owner."""
    return tuple(
        f"{run.name}: {run.result['secure_aggregation']}. The time and bytes of the "
        "exchanges depend on the records, and are not part of the outcome."
        for run in runs
    )


def _audits(runs: Sequence[RunFiles]) -> dict[str, Any] | None:
    known = {run.name: run.audit for run in runs if run.audit is not None}
    if not known:
        return None
    return dict(next(iter(known.values()))) if len(runs) == 1 else known
