"""Errors in an experiment file, each in one sentence: key, value, rule, remedy."""

from __future__ import annotations

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
    "float_type": "a number",
    "bool_type": "true or false",
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


def complaint(error: ValidationError, model: type[BaseModel], prefix: str = "") -> str:
    """The first thing that ``model`` refuses; ``prefix`` is where in the file the model stands."""
    errors = error.errors()
    # An unknown key first: what is missing besides often follows from its misspelling.
    first = next((e for e in errors if e["type"] == "extra_forbidden"), errors[0])
    path = _path(first, model)
    where = prefix + ".".join(map(str, path))
    if first["type"] == "extra_forbidden":
        return unknown_key(where, str(path[-1]), _keys(model, path[:-1]))
    if first["type"] == "missing":
        return f"{where} is missing."
    if first["type"] == "value_error":
        reason = str(first["ctx"]["error"])
        # What is wrong with the whole model begins with the key that it is about.
        return f"{where}: {reason}" if first["loc"] else prefix + reason
    # The branches of a choice such as `integer or "auto"` each have their say.
    rules = [_rule(e) for e in errors if _path(e, model) == path]
    hint = _nearest(first["input"], rules)
    return f"{where} must be {' or '.join(dict.fromkeys(rules))}, got {first['input']!r}.{hint}"


def unknown_key(where: str, key: str, known: Iterable[str]) -> str:
    """The message for a key that nobody reads."""
    names = sorted(known)
    near = get_close_matches(key, names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"{where} is not a known key.{hint} Known here: {', '.join(names) or 'none'}."


def _rule(error: ErrorDetails) -> str:
    rule = _RULES.get(error["type"])
    return rule.format(**error.get("ctx", {})) if rule else f"different: {error['msg']}"


def _nearest(value: Any, rules: list[str]) -> str:
    choices = [part.strip(" '") for rule in rules for part in rule.replace(" or ", ",").split(",")]
    near = get_close_matches(value, choices, n=1) if isinstance(value, str) else []
    return f" Did you mean {near[0]!r}?" if near else ""


def _path(error: ErrorDetails, model: type[BaseModel]) -> list[int | str]:
    """Where in the file; pydantic also names branches of unions, which are not in the file."""
    *inner, last = error["loc"] or ("",)
    path: list[int | str] = []
    for part in inner:
        if isinstance(part, int) or part in _keys(model, path):
            path.append(part)
    unknown = error["type"] == "extra_forbidden"
    if last != "" and (isinstance(last, int) or unknown or last in _keys(model, path)):
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
