"""Which file an experiment is: a path, or the name of one that comes with fedpriv.

A table or schema given in place of an experiment is recognised, and the error says what to write.
"""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_EXPERIMENTS = Path(__file__).parents[1] / "experiments"
_TO_BEGIN = "docs/own-table.md has one to begin with."


def built_in_experiments() -> dict[str, Path]:
    """The experiment files that come with fedpriv, by name."""
    return {path.stem: path for path in sorted(_EXPERIMENTS.glob("*.toml"))}


def experiment_file(source: object) -> Path:
    """The file that is meant: by its path, or by the name of one that comes with fedpriv."""
    if not isinstance(source, str | Path):
        raise ValueError(
            "experiment must be a file, the name of a built-in one, or a dict of its tables, got "
            f'{type(source).__name__}. Records go into a file of their own: data={{"path": '
            '"visits.csv", "schema": "visits.toml"}.'
        )
    path = Path(source)
    if path.suffix in (".csv", ".parquet"):
        raise ValueError(
            f"experiment {str(source)!r} is a table. An experiment is a TOML file that names it, "
            f"and a schema: path and schema in [data]. {_TO_BEGIN}"
        )
    if path.is_file():
        return path
    known = built_in_experiments()
    if str(source) in known:
        return known[str(source)]
    beside = [str(each) for each in path.parent.glob("*.toml")]
    near = get_close_matches(str(source), [*known, *beside], n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ValueError(
        f"experiment {str(source)!r} is neither a file nor one of {', '.join(known)}: "
        f"`fedpriv list experiments` shows where these are.{hint}"
    )


def require_no_schema(values: Mapping[str, Any], path: Path) -> None:
    """Refuse a file that describes a table, where one that names it is wanted."""
    if "columns" in values:
        raise ValueError(
            f"experiment {str(path)!r} is a schema. An experiment is a file that names it, beside "
            f"the table: schema and path in [data]. {_TO_BEGIN}"
        )
