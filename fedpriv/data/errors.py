"""`DataError`, the one error of this package, and the import of optional libraries."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class DataError(ValueError):
    """The data cannot be used as requested. The message names the place and rule, never a value."""


def import_optional(module: str, *, extra: str) -> Any:
    """Import ``module`` when it is first needed, or name the extra that brings it."""
    try:
        return import_module(module)
    except ImportError:
        raise DataError(
            f"{module} is not installed. Install it with: pip install 'fedpriv[{extra}]'."
        ) from None
