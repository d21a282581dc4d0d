"""Errors in an experiment file, each in one sentence: key, value, rule, remedy."""

from __future__ import annotations

from contextlib import suppress
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

# What pydantic calls a rule, in the words of a TOML file.
_RULES = {
    "string_type": "text",
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "finite_number": "finite",
    "greater_than": "greater than {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "less_than": "less than {lt:g}",
    "less_than_equal": "at most {le:g}",
    "literal_error": "{expected}",
    "guest": "'path/to/file.py:Name' or the name of an installed one",
}


_REMEDIES = {
    "strategy": "Add [strategy] with a name; `fedpriv list strategies` shows which there are.",
    "data": "Add [data] with the name of a built-in data set (`fedpriv list data`), or with path "
    "and schema of a table of your own.",
}


def complaint(error: ValidationError, model: type[BaseModel], prefix: str = "") -> str:
    """The first thing that ``model`` refuses; ``prefix`` is where in the file the model stands."""
    errors = error.errors()
    # An unknown key first: a missing key is often just misspelt.
    first = next((e for e in errors if e["type"] == "extra_forbidden"), errors[0])
    path = _path(first, model)
    where = prefix + ".".join(map(str, path))
    if first["type"] == "extra_forbidden":
        key = str(path[-1])
        if len(path) == 1 and (tables := tables_with(model, key)):
            return f"{prefix}{elsewhere(key, tables)}"
        return unknown_key(where, key, _keys(model, path[:-1]))
    if first["type"] == "missing":
        return f"{where} is missing. {_REMEDIES.get(where) or _add(where)}"
    if first["type"] == "value_error":
        reason = str(first["ctx"]["error"])
        # What is wrong with the whole model begins with the key that it is about.
        return f"{where}: {reason}" if first["loc"] else prefix + reason
    # Each branch of a choice such as `integer or "auto"` reports its own error.
    rules = [_rule(e) for e in errors if _path(e, model) == path]
    hint = _nearest(first["input"], rules) or _rewritten(first["input"], rules)
    return f"{where} must be {' or '.join(dict.fromkeys(rules))}, got {first['input']!r}.{hint}"


def _add(where: str) -> str:
    """The remedy for a key, or a table, that is missing."""
    table, _, key = where.rpartition(".")
    return f"Add {key} to [{table}]." if table else f"Add [{key}]."


def unknown_key(where: str, key: str, known: Iterable[str]) -> str:
    """The message for an unknown key."""
    names = sorted(known)
    near = get_close_matches(key, names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"{where} is not a known key.{hint} Known here: {', '.join(names) or 'none'}."


def tables_with(model: type[BaseModel], key: str) -> list[str]:
    """The tables of a file that have a key; options of a strategy stand beside its name."""
    tables = [table for table in _keys(model, []) if key in _keys(model, [table])]
    if "strategy" in model.model_fields and "strategy" not in tables:
        from fedpriv.strategies import STRATEGIES  # when something is wrong: it takes a second

        if any(key in info.options.model_fields for info in STRATEGIES.values()):
            tables.append("strategy")
    return sorted(tables)


def elsewhere(key: str, tables: Iterable[str], value: str = "…") -> str:
    """The message for a key given without its table."""
    names = [f"{table}.{key}" for table in tables]
    table = names[0].partition(".")[0]
    return (
        f"{key} is a key of a table: {' or '.join(names)}. Write --set {names[0]}={value}, or in "
        f'Python {table}={{"{key}": {value}}}.'
    )


def _rule(error: ErrorDetails) -> str:
    rule = _RULES.get(error["type"])
    return rule.format(**error.get("ctx", {})) if rule else f"different: {error['msg']}"


def _nearest(value: Any, rules: list[str]) -> str:
    choices = [part.strip(" '") for rule in rules for part in rule.replace(" or ", ",").split(",")]
    near = get_close_matches(value, choices, n=1) if isinstance(value, str) else []
    return f" Did you mean {near[0]!r}?" if near else ""


def _rewritten(value: Any, rules: list[str]) -> str:
    """The probable intended form of a value: in brackets, or without quotes."""
    if "a list" in rules and isinstance(value, str) and value.startswith("["):
        return """ Texts in a list need quotes, which a shell keeps within others: '["a", "b"]'."""
    if "a list" in rules and isinstance(value, int | float | str):
        return f" Write [{value!r}]."
    if {"a number", "an integer"} & set(rules) and isinstance(value, str):
        with suppress(ValueError):
            return f" Write {float(value):g}, without quotes."
    return ""


def _path(error: ErrorDetails, model: type[BaseModel]) -> list[int | str]:
    """Where in the file; pydantic also names branches of unions, which are not in the file."""
    *inner, last = error["loc"] or ("",)
    path: list[int | str] = []
    for part in inner:
        if isinstance(part, int) or part in _keys(model, path):
            path.append(part)
    unknown = error["type"] == "extra_forbidden"
    if isinstance(last, int) or unknown or (last and last in _keys(model, path)):
        path.append(last)
    return path


def _keys(model: type[BaseModel], path: list[int | str]) -> set[str]:
    """The keys that the table at ``path`` of a file may have; none where there is no table."""
    inner = [model]
    for part in path:
        if isinstance(part, str):
            inner = [
                found
                for each in inner
                for name, field in each.model_fields.items()
                if part in (name, field.alias)
                for found in _models_in(field.annotation)
            ]
    return {field.alias or name for each in inner for name, field in each.model_fields.items()}


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    """The sections that an annotation such as ``Section | None`` holds."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for argument in get_args(annotation) for found in _models_in(argument)]
