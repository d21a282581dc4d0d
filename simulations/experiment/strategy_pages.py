"""Pages about strategies, made from the code: algorithm, options with defaults and meanings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedpriv.simulations.experiment.catalogue import PARTY_ALONE, catalogue
from fedpriv.strategies import ALGORITHMS
from fedpriv.strategies.common.meanings import meanings

if TYPE_CHECKING:
    from fedpriv.strategies import StrategyInfo

_HEAD = """# Strategies and their options

This page is generated from the code by `fedpriv list strategies --markdown`, and a test checks that
it is up to date. `fedpriv list strategies NAME` prints one strategy. For the engines that run each
strategy, with noise at the server or in shares, see [what-runs-where.md](what-runs-where.md); for
the source of each algorithm, see [sources.md](sources.md).
"""
_NOISE = {
    "server": "the server, once for each release",
    "parties": "each party, on its own answer",
    "nobody": "nobody: nothing is guaranteed",
}


def explained(info: StrategyInfo) -> dict[str, Any]:
    """The details of a strategy, in addition to its line in the list."""
    return {
        "algorithm": ALGORITHMS.get(info.name, "").strip(),
        "meanings": meanings(info.options),
        "units": [unit.value for unit in info.units] if info.private else [],
        "noise_by": info.noise_by,
        "shares": info.shares,
    }


def defaults(info: StrategyInfo) -> dict[str, Any]:
    """The default of every option, JSON-ready."""
    values = {
        name: field.get_default(call_default_factory=True)
        for name, field in info.options.model_fields.items()
    }
    return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}


def strategy_page() -> str:
    """All strategies as one page of Markdown."""
    infos = [info for name, info in catalogue().items() if name != PARTY_ALONE]
    return "\n".join([_HEAD, *map(_section, infos)])


def _section(info: StrategyInfo) -> str:
    facts = explained(info)
    noise = _NOISE[info.noise_by] + (", or all parties in shares" if info.shares else "")
    problems = "convex problems" if info.convex_only else "any model"
    units = f"; protects a {', a '.join(facts['units'])}" if facts["units"] else ""
    lines = [
        f"## {info.name}",
        "",
        facts["algorithm"],
        "",
        f"Noise is added by {noise}; {problems}{units}.",
    ]
    options = defaults(info)
    if options:
        lines += ["", "| option | default | meaning |", "|---|---|---|"]
        lines += [
            f"| `{name}` | `{_toml(options[name])}` | {_cell(meaning)} |"
            for name, meaning in facts["meanings"].items()
        ]
    return "\n".join([*lines, ""])


def _toml(value: Any) -> str:
    """A default as an experiment file has it; what is not set has none."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("``", "`")
