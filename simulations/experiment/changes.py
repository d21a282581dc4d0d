"""Changes to an experiment by ``--set key=value``, before it is checked."""

from __future__ import annotations

import tomllib
from typing import Any

from fedpriv.simulations.experiment.named_files import guests


def apply(values: dict[str, Any], override: str) -> None:
    """Set one dotted key, such as ``privacy.epsilon=0.5``; text needs no quotes."""
    key, equals, text = override.partition("=")
    *sections, last = key.strip().split(".")
    if not equals or not last or not all(sections):
        raise ValueError(f"--set must be written key=value, as in run.seed=1; got {override!r}.")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    table = values
    for section in sections:
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            raise ValueError(f"--set {key}: {section!r} is a value, not a table.")
    table[last] = value


def leave_behind(values: dict[str, Any], written: dict[str, Any]) -> None:
    """When --set names another strategy, drop the file's options that only the old one has."""
    from fedpriv.simulations.experiment.catalogue import known_options

    now = values.get("strategy")
    if not isinstance(now, dict) or now.get("name") == written.get("name"):
        return
    pins = guests.pinned(values)
    old, new = known_options(written.get("name"), pins), known_options(now.get("name"), pins)
    for key in old - new:
        if key in now and now[key] == written.get(key):
            del now[key]
