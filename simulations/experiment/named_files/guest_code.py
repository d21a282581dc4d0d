"""Executing the code of a guest, and saying in one sentence what went wrong in it."""

from __future__ import annotations

import ast
import sys
from contextlib import contextmanager
from difflib import get_close_matches
from functools import lru_cache
from hashlib import sha256
from importlib import import_module
from inspect import signature
from pathlib import Path
from traceback import extract_tb, walk_tb
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.metadata import EntryPoint

_NAME = "_fedpriv_guest_"  # what the modules of files begin with
_MODULES = 64  # kept in a process: a guest is executed once for each content of its file


@lru_cache(maxsize=_MODULES)
def executed(path: str, source: bytes) -> ModuleType:
    """A file as a module under a name of its own, which no import finds by accident."""
    name = f"{_NAME}{sha256(path.encode() + source).hexdigest()[:32]}"
    module = ModuleType(name)
    module.__file__ = path
    sys.modules[name] = module  # dataclasses and pydantic look their names up there
    try:
        exec(compile(source, path, "exec", dont_inherit=True), vars(module))  # noqa: S102
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ValueError(blame(error, Path(path).name, path)) from None
    return module


def imported(point: EntryPoint) -> ModuleType:
    """The module of an installed package that an entry point names."""
    try:
        return import_module(point.module)
    except Exception as error:
        raise ValueError(blame(error, point.name, point.module)) from None


def require_name_in_file(key: str, reference: str, folder: Path) -> None:
    """Refuse a file without a name in it, and tell which it defines. Nothing is executed."""
    if not reference.endswith(".py"):
        return
    try:
        tree = ast.parse((folder / reference).read_bytes())
    except (OSError, SyntaxError, ValueError):
        names = []
    else:
        names = [
            each.name for each in tree.body if isinstance(each, ast.ClassDef | ast.FunctionDef)
        ]
    defined = f"; it defines {', '.join(names)}" if names else ""
    name = names[-1] if names else "Name"
    raise ValueError(
        f"{key} must say what of the file is meant, as in {reference}:{name}; got {reference!r}"
        f"{defined}."
    )


def require_complete(value: object, title: str) -> None:
    """Refuse a class that lacks its base's abstract members, with the nearest name as a hint."""
    missing = sorted(getattr(value, "__abstractmethods__", ()))
    if not isinstance(value, type) or not missing:
        return
    own = [key for key in vars(value) if not key.startswith("__")]
    near = {key: get_close_matches(key, own, n=1) for key in missing}
    hint = "".join(
        f" It has {found[0]!r}: is {key!r} meant?" for key, found in near.items() if found
    )
    raise ValueError(
        f"{title!r} must define {', '.join(_declared(value, key) for key in missing)}, which "
        f"{value.__bases__[0].__name__} leaves to it.{hint}"
    )


def _declared(owner: type, key: str) -> str:
    """A method with its parameters, or the name of what is no method."""
    method = getattr(owner, key)
    return (
        f"{key}({', '.join(list(signature(method).parameters)[1:])})" if callable(method) else key
    )


@contextmanager
def blamed_while_it_runs(owner: object) -> Iterator[None]:
    """Name the file and its own line in an error out of a guest's object, such as a strategy.

    Errors that fedpriv raises while the guest calls it explain themselves.
    """
    try:
        yield
    except Exception as error:
        kind = type(owner)
        if not kind.__module__.startswith(_NAME):
            raise
        path = str(sys.modules[kind.__module__].__file__)
        last = list(walk_tb(error.__traceback__))[-1][0].f_globals.get("__name__", "")
        frames = extract_tb(error.__traceback__)
        if last.startswith("fedpriv.") or all(frame.filename != path for frame in frames):
            raise
        title = f"{Path(path).name}:{kind.__qualname__}"
        raise ValueError(blame(error, title, path)) from error


def blame(error: BaseException, name: str, path: str) -> str:
    """What went wrong in a guest, with the last line of its own that was running."""
    if isinstance(error, SyntaxError) and error.filename == path:
        return f"{name}, line {error.lineno}: {error.msg}: {(error.text or '').strip()}"
    frames = [frame for frame in extract_tb(error.__traceback__) if frame.filename == path]
    where = f", line {frames[-1].lineno} ({frames[-1].line})" if frames else ""
    message = f"{name}{where}: {type(error).__name__}: {error}"
    if isinstance(error, ModuleNotFoundError) and error.name:
        beside = Path(path).parent / error.name.partition(".")[0]
        if beside.with_suffix(".py").exists() or beside.is_dir():
            message += (
                ". A guest is one file, the one that is hashed: what lies beside it cannot be "
                "imported. Put it into the file, or install a package with an entry point."
            )
    return message
