"""The report of a comparison: table, findings and plots, on the terminal and in its directory."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from fedpriv import __version__
from fedpriv._durable import replace_file
from fedpriv.privacy.budget import within
from fedpriv.privacy.rounding import rounded_up
from fedpriv.privacy.unit import Unit
from fedpriv.simulations.compare.axes import swept_keys, text_of
from fedpriv.simulations.compare.panels import panels
from fedpriv.simulations.compare.plots import save_plot, text_plot
from fedpriv.simulations.run.files import write_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedpriv.simulations.compare.intervals import Interval
    from fedpriv.simulations.compare.rows import Row
    from fedpriv.simulations.experiment.compare_section import CompareSection
    from fedpriv.simulations.experiment.file import Experiment

COLUMNS = (
    "worst party: the same at the party that is served worst; noise: standard deviation on a "
    "coordinate of the mean gradient or update, or of the model for output perturbation; clipped: "
    "share of gradients or updates that were longer than the clip norm; sent: by one party in the "
    "whole run"
)


PARTIES = (
    "Worst party and gap: of the model on each party's own records (of the test set, where the "
    "data say whose these are, else of its training), over parties with ten of them at least; the "
    "gap is that between the best- and the worst-served one."
)
METRICS = {
    "AUC": "auc",
    "F1": "f1",
    "balanced accuracy": "balanced_accuracy",
    "log-loss": "log_loss",
    "RMSE": "rmse",
    "MAE": "mae",
    "R²": "r2",
    "worst party": "worst_party",
    "gap": "fairness_gap",
    "training objective": "objective",
    "excess risk": "excess_risk",
    "‖θ − θ*‖": "optimality_gap",
}


def terms(experiment: Experiment) -> str:
    """What all rows with noise have in common."""
    privacy, swept = experiment.privacy, swept_keys(experiment)
    l2 = experiment.model.l2
    regulariser = "" if "model.l2" in swept or l2 == "auto" else f", λ = {l2:g}"
    delta = "δ" if "privacy.delta" in swept else f"δ = {privacy.delta:g}"
    return (
        f"{experiment.data.title}, {experiment.model.title} model{regulariser}; at equal "
        f"(ε, {delta}), {Unit(privacy.unit).words}, {privacy.adjacency}"
    )


def table(rows: Sequence[Row], experiment: Experiment) -> Table:
    """The comparison for a terminal."""
    made = Table(title=terms(experiment), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    columns = cell_columns(rows, experiment)
    for heading in columns:
        made.add_column(heading, justify="left" if heading == "strategy" else "right")
    for place, row in enumerate(rows):
        last = place + 1 == len(rows) or _group(rows[place + 1]) != _group(row)
        cells = [column[place] for column in columns.values()]
        made.add_row(*cells, end_section=last, style="dim" if row.epsilon_budget is None else None)
    made.caption = f"{average(rows)}; {COLUMNS}"
    made.caption_justify = "left"
    return made


def write_report(
    directory: Path, rows: Sequence[Row], experiment: Experiment, findings: Sequence[str]
) -> Path:
    """report.md with rows.json, rows.csv and the plots beside it; the path of the first."""
    values = [row.to_dict() for row in rows]
    write_json(directory / "rows.json", values)
    replace_file(directory / "rows.csv", _csv(values))
    parts = [
        f"# {experiment.name}",
        f"SIMULATED: no privacy was spent. fedpriv {__version__}.",
        (
            f"{terms(experiment)}. {average(rows).capitalize()}: Student's t, for noise, "
            f"partitions and initial models, not for the choice of test records. "
            f"{COLUMNS.capitalize()}."
        ),
        _markdown(cell_columns(rows, experiment)),
    ]
    if experiment.guests:
        code = (f"{Path(place).name} {digest}" for place, digest in experiment.guests.items())
        parts.append(f"Code that is not fedpriv's: {', '.join(code)}.")
    parts += ["## Metrics", _markdown(metric_columns(rows, experiment)), PARTIES]
    if findings:
        parts += ["## Findings", "\n".join(f"- {finding}" for finding in findings)]
    parts.append("## Plots")
    for panel in panels(rows, experiment):
        for key in (rows[0].metric, *further_plots(panel.rows)):
            stem = directory / f"{key.replace('_', '-')}-{panel.name}"
            for path in save_plot(panel, stem, key=key)[:1]:
                parts.append(f"![{panel.title}]({path.name})")
        plain = text_plot(panel)
        if plain:
            parts.append(f"```text\n{plain}\n```")
    replace_file(directory / "report.md", "\n\n".join(parts) + "\n")
    return directory / "report.md"


def further_plots(rows: Sequence[Row]) -> list[str]:
    """Which metrics have a picture of their own, beside that which settings are compared by."""
    keys = ("auc", "rmse", "worst_party", "excess_risk")
    return [key for key in keys if any(row.column(key) for row in rows)]


def metric_columns(rows: Sequence[Row], experiment: Experiment) -> dict[str, list[str]]:
    """All metrics with their intervals; one that no row has is left out."""
    columns = {
        "ε": _budget_column(rows),
        "parties": [str(row["parties"]) for row in rows],
        **_axis_columns(rows, experiment),
        "strategy": [row.label for row in rows],
    }
    for title, key in METRICS.items():
        cells = [_interval(row.interval_of(key)) for row in rows]
        if any(row.column(key) for row in rows):
            columns[title] = cells
    return columns


def _interval(interval: Interval | None) -> str:
    if interval is None:
        return "–"
    half = "" if interval.half_width is None else f" ± {interval.half_width:.2g}"
    return f"{interval.mean:.4g}{half}"


def _axis_columns(rows: Sequence[Row], experiment: Experiment) -> dict[str, list[str]]:
    """The values of the keys that are compared over."""
    return {
        key: [text_of(row.point[key]) if key in row.point else "–" for row in rows]
        for key in swept_keys(experiment)
    }


def _budget_column(rows: Sequence[Row]) -> list[str]:
    return [row.budget or "–" for row in rows]


def average(rows: Sequence[Row]) -> str:
    """What a number of the table is, over the seeds."""
    seeds = len(rows[0].results)
    if seeds == 1:
        return "one seed"
    return f"mean over {seeds} seeds ± half of the 95 % confidence interval"


def _group(row: Row) -> tuple[int, str]:
    return int(row["parties"]), row.budget


def cell_columns(rows: Sequence[Row], experiment: Experiment) -> dict[str, list[str]]:
    """The cells of every column; one that says nothing is left out."""
    accuracy = rows[0].metric == "accuracy"
    columns = {
        "ε": _budget_column(rows),
        "parties": [str(row["parties"]) for row in rows],
        **_axis_columns(rows, experiment),
        "strategy": [_name(row, experiment) for row in rows],
        "accuracy %" if accuracy else "loss": [_mean(row) for row in rows],
        "worst party": [_worst(row) for row in rows],
        "noise": [_or_dash(row.mean("noise_stddev"), ".3g") for row in rows],
        "clipped": [_or_dash(row.mean("clip_fraction"), ".1%") for row in rows],
        "rounds": [_or_dash(row.mean("rounds"), ".0f") for row in rows],
        "seconds": [_or_dash(row.mean("seconds"), ".2f") for row in rows],
        "sent": [bytes_text(row.mean("bytes") or 0) for row in rows],
    }
    if experiment.compare:
        columns |= _published(rows, experiment.compare)
    if len(set(columns["parties"])) == 1:
        del columns["parties"]
    if set(columns["worst party"]) == {"–"}:
        del columns["worst party"]
    return columns


def _published(rows: Sequence[Row], axes: CompareSection) -> dict[str, list[str]]:
    """Published numbers for comparison: accuracies in percent, or losses of accuracy."""
    columns = {}
    losses, curves = axes.published_losses, axes.published_accuracies
    if losses:
        columns["lost"] = [_or_dash(_lost(row, rows), ".4f") for row in rows]
        columns["published"] = [_or_dash(losses.get(row.label), ".2g") for row in rows]
    if curves:
        accuracies = [curves.get(row.label, {}).get(row.epsilon_budget or 0.0) for row in rows]
        columns["published %"] = [
            _or_dash(None if x is None else 100 * x, ".1f") for x in accuracies
        ]
    return columns


def _name(row: Row, experiment: Experiment) -> str:
    """The label; with the true ε, if the mechanism is known to cost more than it claims."""
    spent, label = row["epsilon"], row.label
    if spent is None:
        return label if row.epsilon_budget is None else f"{label} (no privacy)"
    if row.epsilon_budget is None:
        return label
    if row["adjacency"] != experiment.privacy.adjacency:
        label = f"{label} ({row['adjacency']})"
    if row["unit"] != experiment.privacy.unit:
        label = f"{label} ({Unit(row['unit']).words})"
    return (
        label
        if within(spent, row.epsilon_budget)
        else f"{label} (really ε = {rounded_up(spent, 3)})"
    )


def _worst(row: Row) -> str:
    worst = row.mean("worst_party")
    if worst is None:
        return "–"
    return f"{100 * worst:.1f}" if row.metric == "accuracy" else f"{worst:.4g}"


def _mean(row: Row) -> str:
    interval = row.interval
    scale, digits = (100, ".2f") if row.metric == "accuracy" else (1, ".4g")
    text = f"{scale * interval.mean:{digits}}"
    if interval.half_width is None:
        return text
    return f"{text} ± {scale * interval.half_width:{'.2f' if scale == 100 else '.2g'}}"


def _lost(row: Row, rows: Sequence[Row]) -> float | None:
    """How much worse than the exact joint model: less accuracy, or more loss of a regression.

    None if that model was not computed.
    """
    exact = [
        r
        for r in rows
        if r["strategy"] == "pooled"
        and r["parties"] == row["parties"]
        and r.point.items() <= row.point.items()
    ]
    if not exact:
        return None
    best, mean = exact[0].interval.mean, row.interval.mean
    return best - mean if row.metric == "accuracy" else mean - best


def _or_dash(value: float | None, form: str) -> str:
    return "–" if value is None else f"{value:{form}}"


def bytes_text(count: float) -> str:
    """A number of bytes for people.

    >>> bytes_text(999), bytes_text(14355)
    ('999 B', '14.4 kB')
    """
    if count < 1000:
        return f"{count:.0f} B"
    return f"{count / 1000:.1f} kB" if count < 1e6 else f"{count / 1e6:.1f} MB"


def _markdown(columns: dict[str, list[str]]) -> str:
    lines = [list(columns), ["---"] * len(columns), *zip(*columns.values(), strict=True)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _csv(values: list[dict[str, Any]]) -> str:
    columns = [key for key, value in values[0].items() if not isinstance(value, dict | list)]
    columns = [key for key in columns if key != "confidence_interval"] + ["low", "high"]
    columns += list(dict.fromkeys(key for row in values for key in row["over"]))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for row in values:
        low, high = row["confidence_interval"] or (None, None)
        writer.writerow({**row, **row["over"], "low": low, "high": high})
    return text.getvalue()
