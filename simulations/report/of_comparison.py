"""The report of a comparison: the figure, the table, findings, the guarantee, then details."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

from fedpriv._toml import to_toml
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.rounding import rounded_up
from fedpriv.privacy.statement.statement import SIMULATED
from fedpriv.privacy.unit import Unit
from fedpriv.simulations.compare.axes import swept_keys
from fedpriv.simulations.compare.headline import headline
from fedpriv.simulations.compare.panels import panels
from fedpriv.simulations.compare.report import (
    COLUMNS,
    METRICS,
    PARTIES,
    average,
    cell_columns,
    further_plots,
    metric_columns,
    terms,
)
from fedpriv.simulations.experiment.budgets import shown, stated
from fedpriv.simulations.report.curves import begun, metric_figure
from fedpriv.simulations.report.details import (
    audit_section,
    configuration_section,
    guest_words,
)
from fedpriv.simulations.report.exchanges import exchange_section
from fedpriv.simulations.report.guarantee import budget_table, meaning
from fedpriv.simulations.report.parts import Cell, Document, Listing, Section, Table, facts
from fedpriv.simulations.report.sizes import party_section

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fedpriv.simulations.compare.comparison import Comparison
    from fedpriv.simulations.compare.rows import Row
    from fedpriv.simulations.experiment.file import Experiment

# What a column of the table is sorted by, and a program reads; the others are text.
_VALUES: dict[str, str] = {
    "worst party": "worst_party",
    "noise": "noise_stddev",
    "clipped": "clip_fraction",
    "rounds": "rounds",
    "seconds": "seconds",
    "sent": "bytes",
}
_TEXT = ("strategy",)
_SUPPORTED = (
    "Each sentence is computed from the numbers on this page, and stated only if the 95 % interval "
    "of the difference, seed by seed, supports it. Intervals are not widened for the number of "
    "sentences."
)
_SEEDED = (
    "The noise follows from a seed, so that the study can be repeated: anyone with the seed can "
    "remove it. Metrics are exact, and outside of any guarantee."
)


def comparison_document(
    comparison: Comparison,
    *,
    machine: Mapping[str, Any] | None = None,
    audit: Mapping[str, Any] | None = None,
) -> Document:
    """The report of a comparison, which is a simulation: anything in it may be shown."""
    rows, experiment = comparison.rows, comparison.experiment
    first = rows[0]
    return Document(
        kind="comparison",
        title=experiment.name,
        status=f"{SIMULATED}.",
        simulated=True,
        version=str(first.results[0]["fedpriv"]),
        question=f"On {terms(experiment)}. {begun(average(rows))}.",
        headline=headline(rows, experiment, comparison.findings),
        facts=_facts(rows, experiment),
        sections=(
            _figures(rows, experiment),
            _table(rows, experiment),
            _findings(comparison.findings),
            _guarantee(rows, experiment),
            _metrics(rows, experiment),
            _parties(rows, experiment),
            exchange_section(_by_label(rows)),
            audit_section(audit),
            configuration_section(
                to_toml(experiment.to_dict()),
                machine=machine,
                seconds=sum(sum(row.column("seconds")) for row in rows),
            ),
        ),
    )


def _facts(rows: Sequence[Row], experiment: Experiment) -> Table:
    counts = sorted({int(row["parties"]) for row in rows})
    first, privacy = rows[0].results[0], experiment.privacy
    runs = sum(len(row.results) for row in rows)
    budgets = [shown(e) for e in _budgets(rows)]
    return facts(
        "facts",
        "In short",
        {
            "data": Cell(text=experiment.data.title, value=experiment.data.title),
            "parties": Cell(text=", ".join(map(str, counts)), value=counts[-1]),
            "records": Cell(text=str(first["records"]), value=first["records"]),
            "strategies": Cell(
                text=str(len({row.label for row in rows if row.epsilon_budget is not None})),
                value=len({row.label for row in rows if row.epsilon_budget is not None}),
            ),
            "ε": Cell(text=", ".join(budgets)),
            "δ": Cell(text=", ".join(map(rounded_up, _deltas(rows))) or "–"),
            "protected": Cell(text=f"{Unit(privacy.unit).words}, {privacy.adjacency}"),
            "seeds": Cell(text=str(len(rows[0].results)), value=len(rows[0].results)),
            "runs": Cell(text=str(runs), value=runs),
        },
    )


def _budgets(rows: Sequence[Row]) -> list[float]:
    return sorted({row.epsilon_budget for row in rows if row.epsilon_budget is not None})


def _deltas(rows: Sequence[Row]) -> list[float]:
    return sorted({float(row["delta"]) for row in rows if row["delta"] is not None})


def _figures(rows: Sequence[Row], experiment: Experiment) -> Section:
    figures = []
    for panel in panels(rows, experiment):
        keys = (rows[0].metric, *further_plots(panel.rows))
        figures += [metric_figure(panel, key) for key in keys]
    known = tuple(figure for figure in figures if figure.curves)
    against = "ε" if not swept_keys(experiment) else swept_keys(experiment)[0]
    words = (
        "Points are means over the seeds, areas their 95 % confidence intervals (Student's t), for "
        "noise, partitions and initial models, not for the choice of test records."
        if len(rows[0].results) > 1
        else "One seed: there are no confidence intervals."
    )
    metric = "accuracy" if rows[0].metric == "accuracy" else "loss"
    return Section(
        id="figures", title=f"{begun(metric)} against {against}", words=(words,), figures=known
    )


def _table(rows: Sequence[Row], experiment: Experiment) -> Section:
    columns = cell_columns(rows, experiment)
    return Section(
        id="table",
        title="All settings",
        words=(f"{begun(COLUMNS)}. {begun(average(rows))}.",),
        tables=(
            Table(
                id="settings",
                title=terms(experiment),
                columns=tuple(columns),
                numeric=tuple(name not in _TEXT for name in columns),
                rows=tuple(
                    tuple(
                        Cell(text=texts[place], value=_value(name, row))
                        for name, texts in columns.items()
                    )
                    for place, row in enumerate(rows)
                ),
                curves=tuple(row.label for row in rows),
                sortable=True,
            ),
        ),
    )


def _value(column: str, row: Row) -> float | int | str | None:
    """What is behind a cell of the table."""
    match column:
        case "ε":
            return stated(row.epsilon_budget)
        case "parties":
            return int(row["parties"])
        case "strategy":
            return row.label
        case "accuracy %" | "loss":
            return row.interval.mean
    if column in _VALUES:
        return row.mean(_VALUES[column])
    point = row.point.get(column)
    return point if isinstance(point, int | float | str) else None


def _findings(found: Sequence[str]) -> Section:
    return Section(
        id="findings",
        title="Findings",
        words=(_SUPPORTED,) if found else (),
        lists=(Listing(title="", items=tuple(found)),) if found else (),
    )


def _guarantee(rows: Sequence[Row], experiment: Experiment) -> Section:
    privacy = experiment.privacy
    promised = sorted(
        {
            (row.epsilon_budget, float(row["delta"]))
            for row in rows
            if row["delta"] is not None
            and row.epsilon_budget is not None
            and isfinite(row.epsilon_budget)
        }
    )
    words = [f"{SIMULATED}. {_SEEDED}"]
    if promised:
        epsilon, delta = promised[-1]
        deltas = {delta for _, delta in promised}
        at = f"and δ = {rounded_up(delta)}" if len(deltas) == 1 else "and δ"
        words.append(
            f"A release with the settings of a row would be (ε, δ)-differentially private at the "
            f"ε of that row {at}, for {Unit(privacy.unit).words}, under {privacy.adjacency} "
            f"adjacency. At ε = {shown(epsilon)}, δ = {rounded_up(delta)}, the largest: "
            + meaning(
                epsilon,
                delta=delta,
                unit=Unit(privacy.unit),
                adjacency=Adjacency(privacy.adjacency),
            )
        )
    words.append(
        "A row whose name says another unit, another adjacency, another ε or no privacy does not "
        "have equal privacy with the others; a row without ε guarantees nothing."
    )
    words += guest_words(experiment.guest_code)
    tables = (budget_table(promised),) if promised else ()
    return Section(id="guarantee", title="What is guaranteed", words=tuple(words), tables=tables)


def _metrics(rows: Sequence[Row], experiment: Experiment) -> Section:
    columns = metric_columns(rows, experiment)
    if len(set(columns["parties"])) == 1:
        del columns["parties"]
    names = {title: key for title, key in METRICS.items() if title in columns}
    return Section(
        id="metrics",
        title="All metrics",
        words=(PARTIES,),
        tables=(
            Table(
                id="all-metrics",
                title="Means and half of the 95 % confidence interval",
                columns=tuple(columns),
                numeric=tuple(name not in _TEXT for name in columns),
                rows=tuple(
                    tuple(
                        Cell(
                            text=texts[place],
                            value=row.mean(names[title]) if title in names else _value(title, row),
                        )
                        for title, texts in columns.items()
                    )
                    for place, row in enumerate(rows)
                ),
                curves=tuple(row.label for row in rows),
                sortable=True,
            ),
        ),
    )


def _parties(rows: Sequence[Row], experiment: Experiment) -> Section:
    """Of the first seed, at the budget of the experiment, or else the largest."""
    finite = [e for e in _budgets(rows) if isfinite(e)]
    wanted = experiment.privacy.epsilon
    epsilon = wanted if wanted in finite else (finite[-1] if finite else None)
    most = max(int(row["parties"]) for row in rows)
    chosen = [
        row
        for row in rows
        if row["parties"] == most
        and row.epsilon_budget in (None, epsilon)
        and row.point in ({}, _first_point(rows))
    ]
    first = [(row, row.results[0]) for row in chosen]
    seed = rows[0].results[0]["seed"]
    budget = "" if epsilon is None else f" at ε = {shown(float(epsilon))}"
    return party_section(
        next((result["party_sizes"] for _, result in first if "party_sizes" in result), None),
        {row.label: result["per_party"] for row, result in first if result.get("per_party")},
        {row.label: str(row["strategy"]) for row in chosen},
        counted=Unit(experiment.privacy.unit).counted,
        where=f"{budget}, seed {seed}",
        whose=f"Seed {seed}: ",
    )


def _first_point(rows: Sequence[Row]) -> Mapping[str, Any]:
    return next((row.point for row in rows if row.point), {})


def _by_label(rows: Sequence[Row]) -> dict[str, list[Mapping[str, Any]]]:
    by_label: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_label.setdefault(row.label, []).extend(row.results)
    return by_label
