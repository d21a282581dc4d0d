"""Protector files: a trained protector as JSON, with its card, its weights and a hash over both.

No pickle: reading a file computes nothing but numbers. The hash finds damage and careless edits;
it is no signature, so accept protectors only from people whose code you would run.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from math import log
from typing import TYPE_CHECKING, Any, NamedTuple

from fedpriv._json import parse_json
from fedpriv._validate import require_count, require_open_unit, require_positive
from fedpriv.learning.protector.protector import Protector
from fedpriv.learning.protector.tensors import from_text, to_text

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = "fedpriv protector 1"
_KEYS = {"format", "card", "weights", "sha256"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizon:
    """For how many rounds a budget, stated as ``noise``, should last; found on public records."""

    noise: float
    rounds: int

    def __post_init__(self) -> None:
        require_positive(noise=self.noise)
        require_count(rounds=self.rounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """The card of a protector: what one must know in order to use and judge it.

    Attributes:
        trained_on: The public data set.
        version: Of fedpriv, which trained it.
        clip_norm: C, for features of norm at most 1.
        norm_share: Share of a round that pays for the norm.
        horizons: One for each budget of the training, hardest first.
        settings: The recipe, and how its budgets were stated.
    """

    trained_on: str
    version: str
    clip_norm: float
    norm_share: float
    horizons: tuple[Horizon, ...]
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_positive(clip_norm=self.clip_norm)
        require_open_unit(norm_share=self.norm_share)
        if not self.horizons:
            raise ValueError("horizons must hold at least one budget, got none.")

    def horizon(self, noise: float) -> int:
        """The horizon of the training budget nearest to ``noise``."""
        require_positive(noise=noise)
        return min(self.horizons, key=lambda known: abs(log(known.noise / noise))).rounds

    @property
    def least_noise(self) -> float:
        """The noise of the largest training budget."""
        return min(known.noise for known in self.horizons)

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return asdict(self)


class Trained(NamedTuple):
    """A protector from a file, and the hash that names it."""

    protector: Protector
    card: Card
    sha256: str


class ProtectorFileError(ValueError):
    """A file is not a protector, or not the one that was written."""


def to_bytes(protector: Protector, card: Card) -> bytes:
    """The file: the same weights and card give the same bytes."""
    body = {"card": card.to_dict(), "weights": to_text(dict(protector.state_dict()))}
    values = {"format": FORMAT, "sha256": _digest(body), **body}
    return (json.dumps(values, indent=1, allow_nan=False) + "\n").encode()


def from_bytes(data: bytes, *, source: str = "the file") -> Trained:
    """Read back what `to_bytes` wrote.

    Raises:
        ProtectorFileError: It is something else, damaged, or changed.
    """
    values = _parsed(data, source)
    body = {"card": values["card"], "weights": values["weights"]}
    if _digest(body) != values["sha256"]:
        raise ProtectorFileError(
            f"{source}: card or weights do not have the hash that the file states. It was changed "
            "or damaged: get it again, or train it again."
        )
    protector = Protector(gated=_is_gated(values["weights"]))
    expected = {name: tuple(tensor.shape) for name, tensor in protector.state_dict().items()}
    try:
        card = _card(values["card"])
        weights = from_text(values["weights"], expected)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise ProtectorFileError(f"{source}: {error}") from None
    protector.load_state_dict(weights)
    return Trained(protector.requires_grad_(False), card, values["sha256"])


def _is_gated(weights: Any) -> bool:
    """Whether the file says that its projector answers twice; shapes are checked afterwards."""
    try:
        return bool(weights["projector.readout.bias"]["shape"] == [2])
    except (TypeError, KeyError):
        return False


def load(path: Path) -> Trained:
    """The protector in a file."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ProtectorFileError(f"{str(path)!r} cannot be read: {error.strerror}.") from None
    return from_bytes(data, source=repr(str(path)))


def _parsed(data: bytes, source: str) -> dict[str, Any]:
    try:
        values = parse_json(data)
    except ValueError:
        kind = " It looks like a pickle or an archive, which are never read here." * (
            data[:1] == b"\x80" or data[:2] == b"PK"
        )
        raise ProtectorFileError(f"{source} is not a protector: it is not JSON.{kind}") from None
    if not isinstance(values, dict) or set(values) != _KEYS or values["format"] != FORMAT:
        raise ProtectorFileError(
            f"{source} is not a protector of this version of fedpriv: it must state the format "
            f"{FORMAT!r}, a card, weights and a sha256."
        )
    return values


def _card(values: dict[str, Any]) -> Card:
    horizons = tuple(Horizon(**horizon) for horizon in values["horizons"])
    return Card(**{**values, "horizons": horizons})


def _digest(body: dict[str, Any]) -> str:
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return sha256(canonical.encode()).hexdigest()
