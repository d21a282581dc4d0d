"""Guests: a user's own strategy, model, loss or data set, from a file or an installed package.

An experiment names a guest where it could name a built-in one: ``path/to/file.py:Name``, relative
to the experiment file, or the name of an entry point of an installed package. A name that fedpriv
itself knows always means fedpriv's own.

It must be known afterwards what was run. So the SHA-256 of the code is computed when an experiment
is read, is stored in the experiment (table ``guests``), and is compared again wherever the code is
loaded: in a worker of a comparison, at a simulated party, when a run is resumed. The bytes that are
hashed are the bytes that are executed.

A guest is code that runs with all rights of the user. Load guests only from your own experiments: a
deployed party, whose experiment comes from elsewhere, refuses every guest before looking for it.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, Any, Literal, get_args

from fedpriv.simulations.experiment.named_files.guest_code import (
    blame,
    executed,
    imported,
    require_name_in_file,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from importlib.metadata import EntryPoint
    from types import ModuleType

Kind = Literal["strategy", "model", "loss", "data"]
GROUPS: dict[Kind, str] = {
    "strategy": "fedpriv.strategies",
    "model": "fedpriv.models",
    "loss": "fedpriv.losses",
    "data": "fedpriv.data",
}
"""The groups of entry points in which an installed package offers guests."""

KEYS: dict[tuple[str, str], Kind] = {
    ("strategy", "name"): "strategy",
    ("model", "name"): "model",
    ("model", "loss"): "loss",
    ("data", "name"): "data",
}
"""The keys of an experiment file that may name a guest."""

# How the axes of a comparison, and a grid, name the same keys.
_DOTTED = {"name", "strategies", *(f"{table}.{key}" for table, key in KEYS)}
_FILE = re.compile(r"(?P<path>.+\.py):(?P<name>[A-Za-z_]\w*)")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Guest:
    """A guest that was loaded.

    Attributes:
        kind: What it stands in for.
        title: What reports call it: ``file.py:Name``, or ``name of package version``.
        sha256: Of its code, 64 hexadecimal digits.
        path: Its file, for errors.
        module: What its file defines.
        value: What its name stands for.
    """

    kind: Kind
    title: str
    sha256: str
    path: str
    module: ModuleType
    value: Any

    @property
    def signature(self) -> str:
        """Its title with the beginning of its hash: what plans, results and statements say."""
        return signature(self.title, self.sha256)

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """Name the guest and its own line in an error that its code raises.

        Errors that fedpriv raises while the guest calls it explain themselves.
        """
        try:
            yield
        except Exception as error:
            frames = extract_tb(error.__traceback__)
            own = type(error).__module__.startswith("fedpriv") or isinstance(error, ValueError)
            if own and frames[-1].filename != self.path:
                raise
            raise ValueError(blame(error, self.title, self.path)) from None


def signature(title: str, digest: str) -> str:
    """A title and the beginning of a hash."""
    return f"{title} (sha256 {digest[:8]}…)"


def title(reference: str) -> str:
    """What reports call a name of an experiment: without the folders of a file."""
    match = _FILE.fullmatch(reference)
    return f"{Path(match['path']).name}:{match['name']}" if match else reference


def anchored(reference: str, folder: Path) -> str:
    """The name with the path of a file made absolute; any other name as it is."""
    match = _FILE.fullmatch(reference)
    return f"{(folder / match['path']).resolve()}:{match['name']}" if match else reference


def is_guest(kind: Kind, reference: object) -> bool:
    """Whether a name is the form of a file's, or that of an installed guest."""
    if not isinstance(reference, str):
        return False
    return _FILE.fullmatch(reference) is not None or _entry_point(kind, reference) is not None


def references(values: Mapping[str, Any]) -> list[tuple[Kind, str]]:
    """All guests that the values of an experiment file name; none is opened."""
    named: list[tuple[Kind, Any]] = [
        (kind, section.get(key))
        for (table, key), kind in KEYS.items()
        if isinstance(section := values.get(table), dict)
    ]
    compare = values.get("compare")
    entries = compare.get("strategies") if isinstance(compare, dict) else None
    named += [
        ("strategy", entry.get("name") if isinstance(entry, dict) else entry)
        for entry in (entries if isinstance(entries, list | tuple) else ())
    ]
    return [(kind, str(name)) for kind, name in named if is_guest(kind, name)]


def anchor(values: dict[str, Any], folder: Path) -> None:
    """Make the paths of all guests absolute: what loads them may run elsewhere."""
    for table, key in KEYS:
        section = values.get(table)
        if isinstance(section, dict) and isinstance(section.get(key), str):
            require_name_in_file(f"{table}.{key}", section[key], folder)
            section[key] = anchored(section[key], folder)
    for table in ("compare", "tuning"):
        if isinstance(values.get(table), dict):
            values[table] = _anchored_within(values[table], folder, "")


def _anchored_within(value: Any, folder: Path, key: str) -> Any:
    """The same with every name below a key that may name a guest, in lists and tables alike."""
    match value:
        case dict():
            return {k: _anchored_within(item, folder, k) for k, item in value.items()}
        case list():
            return [_anchored_within(item, folder, key) for item in value]
        case str() if key in _DOTTED:
            return anchored(value, folder)
    return value


def pinned(values: Mapping[str, Any]) -> dict[str, str]:
    """The hash of every guest that an experiment names, by the place of its code.

    A hash that the experiment states already is kept: `load` compares it.
    """
    stated = values.get("guests")
    pins = dict(stated) if isinstance(stated, dict) else {}
    for kind, reference in references(values):
        place = _place(kind, reference)
        if place not in pins:
            pins[place] = _digest(_read(kind, reference))
    return pins


def pin_of(kind: Kind, reference: str | None, pins: Mapping[str, str]) -> str | None:
    """The hash that an experiment states for a name; None if that is no guest's."""
    return pins.get(_place(kind, reference)) if reference and is_guest(kind, reference) else None


def as_pins(kind: Kind, reference: str, pin: str) -> dict[str, str]:
    """The hash of one guest as the table that `load` takes."""
    return {_place(kind, reference): pin}


def require_no_guest(values: Mapping[str, Any]) -> None:
    """Refuse an experiment that names a guest, without looking for it: for deployments."""
    for kind, reference in references(values):
        raise ValueError(
            f"a deployment runs no code that an experiment names, got the {kind} "
            f"{title(reference)!r}: a party would have to trust it with its records. Use what "
            "fedpriv has built in; guests are for simulations and for releases in one place."
        )


def load(kind: Kind, reference: str, pins: Mapping[str, str]) -> Guest:
    """Load a guest: read its file once, compare the hash of what was read, and execute that.

    Raises:
        ValueError: The file or the name is missing, the code is not the one that the experiment
            states, or it fails; the error then names the failing line.
    """
    sources = _read(kind, reference)
    digest, name = _digest(sources), title(reference)
    stated = pins.get(_place(kind, reference))
    if stated is not None and stated != digest:
        raise ValueError(
            f"{name!r} was changed since the experiment was read: its sha256 is {digest[7:15]}…, "
            f"and {stated.removeprefix('sha256:')[:8]}… is stated. A run goes on with the code "
            "that it began with: put that back, or start a new run."
        )
    match = _FILE.fullmatch(reference)
    if match:
        path, attribute = match["path"], match["name"]
        module = executed(path, sources[path])
    else:
        point = _entry_point(kind, reference)
        if point is None:
            raise ValueError(f"{reference!r} is not installed.")
        version = f"{point.dist.name} {point.dist.version}" if point.dist else "a package"
        path, attribute, name = next(iter(sources)), point.attr, f"{reference} of {version}"
        module = imported(point)
    if not hasattr(module, attribute):
        known = sorted(
            key
            for key, value in vars(module).items()
            if not key.startswith("_") and getattr(value, "__module__", "") == module.__name__
        )
        raise ValueError(
            f"{name!r}: {path!r} defines no {attribute!r}. It defines: "
            f"{', '.join(known) or 'nothing'}."
        )
    return Guest(
        kind=kind,
        title=name,
        sha256=digest.removeprefix("sha256:"),
        path=path,
        module=module,
        value=getattr(module, attribute),
    )


def module_of(path: Path) -> ModuleType:
    """What a file defines, for a listing."""
    place = str(path.resolve())
    return executed(place, _bytes(Path(place), place))


def installed(kind: Kind) -> tuple[str, ...]:
    """The names of the guests that installed packages offer."""
    names = sorted({point.name for point in _points(GROUPS[kind])})
    return tuple(name for name in names if _entry_point(kind, name) is not None)


@lru_cache(maxsize=len(GROUPS))
def _points(group: str) -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=group))


def _entry_point(kind: Kind, name: str) -> EntryPoint | None:
    """What an installed package offers under a name that is not one of fedpriv's own."""
    found = next((point for point in _points(GROUPS[kind]) if point.name == name), None)
    if found is None or name.partition(":")[0] in _built_in(kind):  # a variant, as in digits:3v5
        return None
    return found


def _built_in(kind: Kind) -> Collection[str]:
    match kind:
        case "strategy":
            from fedpriv.simulations.experiment.catalogue import catalogue

            return catalogue()
        case "data":
            from fedpriv.data import names

            return names()
    from fedpriv.simulations.experiment.model_section import Losses, Models

    return get_args(Models if kind == "model" else Losses)


def _place(kind: Kind, reference: str) -> str:
    """What a hash is stated for: a file, or an entry point with its group."""
    match = _FILE.fullmatch(reference)
    return match["path"] if match else f"{GROUPS[kind]}:{reference}"


def _read(kind: Kind, reference: str) -> dict[str, bytes]:
    """The code of a guest, by file, that of its name first. Nothing is executed.

    Of an entry point that is its module and whatever else of its package the installer listed.
    """
    match = _FILE.fullmatch(reference)
    if match:
        return {match["path"]: _bytes(Path(match["path"]), reference)}
    point = _entry_point(kind, reference)
    spec = None if point is None else find_spec(point.module)
    if point is None or spec is None or spec.origin is None:
        raise ValueError(f"the entry point {reference!r} names a module that is not installed.")
    own = {spec.origin: _bytes(Path(spec.origin), reference)}
    listed = (point.dist.files or ()) if point.dist else ()
    beside = {
        str(file.locate()): _bytes(Path(str(file.locate())), reference)
        for file in sorted(listed)
        if file.suffix == ".py"
    }
    return {**own, **beside}


def _bytes(path: Path, reference: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(
            f"{title(reference)!r}: {str(path)!r} cannot be read: {error.strerror}. A path is "
            "relative to the experiment file, and with --set to the working directory."
        ) from None


def _digest(sources: Mapping[str, bytes]) -> str:
    """SHA-256 of a file; of several, that of their hashes in order, wherever they lie."""
    hashes = [sha256(source).hexdigest() for source in sources.values()]
    return (
        f"sha256:{hashes[0] if len(hashes) == 1 else sha256(''.join(hashes).encode()).hexdigest()}"
    )
