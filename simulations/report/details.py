"""Details at the end of a report: audits, configuration, versions and machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedpriv.simulations.report.parts import Cell, Section, Text, facts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

AUDIT = "audit.json"
"""What an audit of the results left beside them; of a release it is no part of the outcome."""

_MOST = 60  # entries of an audit; the file has them all


def audit_section(audit: Mapping[str, Any] | None) -> Section:
    """What an audit found, entry by entry."""
    if audit is None:
        return Section(id="audit", title="Audit")
    entries = list(_flat(audit))
    source = (
        f"From {AUDIT}. An audit bounds a privacy loss from below: a bound above the stated ε "
        "proves an error, one below it proves nothing."
    )
    words = [source]
    if len(entries) > _MOST:
        words.append(f"The first {_MOST} of {len(entries)} entries.")
    table = facts("audit-entries", "What was found", dict(entries[:_MOST]))
    return Section(id="audit", title="Audit", words=tuple(words), tables=(table,))


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Cell]]:
    """Every number and text of nested tables and lists, by its place."""
    match value:
        case dict():
            for key, each in value.items():
                yield from _flat(each, f"{name}.{key}" if name else str(key))
        case list():
            for place, each in enumerate(value):
                yield from _flat(each, f"{name}.{place}" if name else str(place))
        case bool() | None:
            yield name, Cell(text=str(value).lower() if value is not None else "–")
        case float():
            yield name, Cell(text=f"{value:.6g}", value=value)
        case _:
            yield name, Cell(text=str(value), value=value)


def configuration_section(
    *configurations: str,
    machine: Mapping[str, Any] | None = None,
    seconds: float | None = None,
) -> Section:
    """The whole experiment, and, of a simulation, what it was computed on."""
    titles = ["config.toml"]
    if len(configurations) > 1:
        titles = [f"config.toml of run {place}" for place in range(1, len(configurations) + 1)]
    entries = {
        str(name): Cell(text=str(value), value=value) for name, value in (machine or {}).items()
    }
    if seconds is not None:
        entries["seconds of training, all runs together"] = Cell(
            text=f"{seconds:.1f}", value=seconds
        )
    return Section(
        id="configuration",
        title="Configuration",
        tables=(facts("versions", "What it was computed with", entries),) if entries else (),
        texts=tuple(
            Text(title=title, text=text) for title, text in zip(titles, configurations, strict=True)
        ),
    )


def guest_words(guests: Sequence[Mapping[str, str]]) -> list[str]:
    """Code that is not fedpriv's, by its hash."""
    return [
        f"Code that is not fedpriv's: {guest['kind']} {guest['source']}, sha256 {guest['sha256']}."
        for guest in guests
    ]
