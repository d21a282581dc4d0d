"""Changes to what is valid: to bytes, and to the values that a document holds."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

_PIECES = (
    b"\0",
    b"\xff" * 8,
    b"\x7f" + b"\xff" * 7,
    b"\x80",
    b"[" * 3000,
    b"{}",
    b'"',
    b"\n",
    b"-1",
)

ODD: tuple[Any, ...] = (
    *(0, -1, 1, 2**31, 2**53 + 1, 2**63, 2**64, 10**30, 10**400, True, False),
    *(0.0, -0.0, 0.5, -1.5, 1e-300, 1e300, 1e308, float("inf"), float("-inf"), float("nan")),
    *("", "a", "\0", "../../up", "/", "é", "x" * 5000, "1", "nan", "record", "replace-one"),
    *([], [[]], [0], ["a"], [1, "a"], [[1, 2], [3]], {}, {"a": 1}, {"name": []}, {"": {"": {}}}),
)
"""Values of every type that files and messages can hold, and ends of their ranges."""


def changed_bytes(data: bytes, random: Random) -> bytes:
    """Bytes after one to four changes: bits, pieces left out, doubled, put in, or cut off."""
    found = bytearray(data)
    for _ in range(random.randint(1, 4)):
        at = random.randint(0, len(found))
        end = min(len(found), at + random.choice((1, 1, 2, 4, 8, 40)))
        match random.randint(0, 5):
            case 0 if at < len(found):
                found[at] ^= 1 << random.randint(0, 7)
            case 1:
                del found[at:end]
            case 2:
                found[at:at] = found[at:end]
            case 3:
                del found[at:]
            case 4:
                found[at:at] = random.choice(_PIECES)
            case _:
                found[at:end] = random.choice(_PIECES)[: end - at]
    return bytes(found)


def changed_values(values: Any, random: Random) -> Any:
    """The values of a document, of which one to three are odd, missing, doubled or exchanged."""
    found = deepcopy(values)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        places = list(_places(found))
        if places:
            _change(*random.choice(places), places, random)
    return found


def _change(owner: Any, key: Any, places: list[tuple[Any, Any]], random: Random) -> None:
    value = owner[key]
    match random.randint(0, 5):
        case 0:
            del owner[key]
        case 1 if isinstance(owner, dict):
            owner[random.choice(("name", "kind", "x", ""))] = _odd(random)
        case 1:
            owner.insert(key, deepcopy(value))
        case 2:
            other, place = random.choice(places)
            owner[key] = deepcopy(other[place])
        case 3 if isinstance(value, int | float) and abs(value) < 1e100:
            owner[key] = value * random.choice((-1, 0.5, 2, 10**9)) + random.choice((0, 1))
        case _:
            owner[key] = _odd(random)


def _odd(random: Random) -> Any:
    return deepcopy(random.choice(ODD))


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in tables and lists, as owner and key."""
    if isinstance(value, list | dict):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])
