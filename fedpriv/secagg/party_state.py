"""Party states: what a party remembers between two steps, and no longer than it must.

States are frozen. Each has a binary form, for parties that run each step in a fresh process. It
holds secrets: keep it where the records are kept, and keep only the latest one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedpriv.secagg.messages import BOTH_SHARES_BYTES
from fedpriv.secagg.primitives.codec import Fixed, Ids, Layout, Table
from fedpriv.secagg.primitives.keys import KEY_BYTES
from fedpriv.secagg.primitives.kinds import Kind
from fedpriv.secagg.round import Bound

if TYPE_CHECKING:
    from collections.abc import Mapping

LINK_BYTES = 2 * KEY_BYTES
"""The secrets agreed with a partner: of the channel keys, then of the mask keys."""


class PartyState(Bound):
    """The state of a party after a step of ``round``."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Enrolled(PartyState):
    """The state of a member that has joined no round yet: ``round`` is 0. Made once per run."""

    kind: ClassVar[int] = Kind.ENROLLED


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Advertised(PartyState):
    """After step 0: the private mask key, and the holders drawn."""

    kind: ClassVar[int] = Kind.ADVERTISED
    layout: ClassVar[Layout] = {"mask_key": Fixed(KEY_BYTES), "holders": Ids()}
    mask_key: bytes
    holders: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Shared(PartyState):
    """After step 1: the seed of the self-mask, and the secrets agreed with each partner.

    The mask key itself is erased: only its holders can reconstruct it. ``held`` has the party's
    share of its own secrets, if it is one of its own holders.
    """

    kind: ClassVar[int] = Kind.SHARED
    layout: ClassVar[Layout] = {
        "holders": Ids(),
        "seed": Fixed(KEY_BYTES),
        "links": Table(LINK_BYTES),
        "held": Table(BOTH_SHARES_BYTES),
    }
    holders: tuple[int, ...]
    seed: bytes
    links: Mapping[int, bytes]
    held: Mapping[int, bytes]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Answered(PartyState):
    """After step 2: of all secrets, only the shares held for others remain."""

    kind: ClassVar[int] = Kind.ANSWERED
    layout: ClassVar[Layout] = {
        "holders": Ids(),
        "sharers": Ids(),
        "held": Table(BOTH_SHARES_BYTES),
    }
    holders: tuple[int, ...]
    sharers: tuple[int, ...]
    held: Mapping[int, bytes]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Confirmed(PartyState):
    """After step 3, active mode: bound by signature to one set of survivors."""

    kind: ClassVar[int] = Kind.CONFIRMED
    layout: ClassVar[Layout] = {
        "holders": Ids(),
        "survivors": Ids(),
        "held": Table(BOTH_SHARES_BYTES),
    }
    holders: tuple[int, ...]
    survivors: tuple[int, ...]
    held: Mapping[int, bytes]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Revealed(PartyState):
    """After step 4: nothing is left to reveal."""

    kind: ClassVar[int] = Kind.REVEALED
