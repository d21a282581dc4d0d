"""Patches of Flower: every part of its inside that fedpriv replaces or relies on, in one list.

Flower's releases come every two weeks, and its inside changes without notice. What is listed here
is what a deployment depends on beyond the documented interface: names that are replaced, names that
are imported from its inside, and tables of its database. `differences` says what of that is gone or
has changed in the Flower that is installed. A name that fedpriv imports and ``parts.toml`` does not
list fails the tests, which print the line to add.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fedpriv._toml import read_toml

if TYPE_CHECKING:
    from collections.abc import Iterable

    Change = tuple[ModuleType, str, object]

DOCUMENTED = ("flwr.app", "flwr.clientapp", "flwr.serverapp", "flwr.serverapp.strategy")
"""Modules whose names are Flower's documented interface, and not listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Parts of Flower's inside, as ``parts.toml`` lists them.

    Attributes:
        tested: The Flower that the deployment tests ran with.
        replaced: Names in the place of which `superlink` and `supernode` put something else, and
            their shape in that version.
        used: Names that are imported, or used of what comes from there, and their shape.
        tables: Tables of the SuperLink's database and the columns that `fleet_rules` and
            `completeness` need.
    """

    tested: str
    replaced: dict[str, str]
    used: dict[str, str]
    tables: dict[str, list[str]]


def read_parts() -> Parts:
    """The list."""
    return Parts(**read_toml(Path(__file__).with_name("parts.toml"), "list of Flower's parts"))


def put_in_place(changes: Iterable[Change]) -> None:
    """Replace parts of Flower, in this process, before it is started.

    Raises:
        RuntimeError: There is no such part: this is another Flower than the one that is pinned.
    """
    for owner, name, value in changes:
        if not hasattr(owner, name):
            raise RuntimeError(f"this Flower has no {name}: fedpriv needs the one that it pins.")
        setattr(owner, name, value)


def installed() -> str:
    """The version of Flower that is installed."""
    return version("flwr")


def differences(parts: Parts) -> list[str]:
    """What is gone or has changed since the version that was tested; empty if nothing has."""
    found = []
    for name, shape in {**parts.replaced, **parts.used}.items():
        try:
            present = shape_of(part(name))
        except (ImportError, AttributeError):
            found.append(f"{name} is gone")
            continue
        if present != shape:
            found.append(f"{name} was {shape} and is {present}")
    return found + _missing_columns(parts)


def shape_of(found: Any) -> str:
    """What matters of a name to whoever uses it: a signature, a constant's value, or a kind."""
    if isinstance(found, ModuleType):
        return "module"
    if isinstance(found, str | int | float):
        return repr(found)
    if hasattr(found, "DESCRIPTOR") or (inspect.isclass(found) and issubclass(found, Enum)):
        return "message" if hasattr(found, "DESCRIPTOR") else "enumeration"
    if callable(found):
        return _signature(found)
    return type(found).__name__


def _signature(found: Any) -> str:
    """Names, kinds and optionality of the parameters; annotations differ between Pythons."""
    try:
        parameters = inspect.signature(found).parameters.values()
    except ValueError:
        return "class"
    words, named = [], False
    for each in parameters:
        if each.kind is each.KEYWORD_ONLY and not named:
            named = True
            words.append("*")
        named = named or each.kind is each.VAR_POSITIONAL
        star = "*" * (each.kind is each.VAR_POSITIONAL) + "**" * (each.kind is each.VAR_KEYWORD)
        words.append(f"{star}{each.name}{'' if each.default is each.empty else '='}")
    return f"({', '.join(words)})"


def part(name: str) -> Any:
    """A module, or a name in one, or a name of a class there."""
    words = name.split(".")
    for length in range(len(words), 0, -1):
        try:
            found: Any = import_module(".".join(words[:length]))
        except ModuleNotFoundError:
            continue
        for word in words[length:]:
            found = getattr(found, word)
        return found
    raise ImportError(name)


def _missing_columns(parts: Parts) -> list[str]:
    """Columns that Flower's models do not have."""
    models = (
        "flwr.supercore.state.schema.linkstate_models.LinkStateBase",
        "flwr.supercore.state.schema.objectstore_models.ObjectStoreBase",
        "flwr.supercore.state.schema.corestate_models.FlwrBase",
    )
    tables: dict[str, Any] = {}
    for name in models:
        try:
            tables |= part(name).metadata.tables
        except (ImportError, AttributeError):
            return [f"{name} is gone"]
    return [
        f"the column {column} of the table {table} is gone"
        for table, columns in parts.tables.items()
        for column in columns
        if table not in tables or column not in tables[table].columns
    ]
