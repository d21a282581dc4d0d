"""Work of a party and of the server: how often each operation that takes time is done.

A count of one operation, times its unit cost, is processor time. Computing the answer itself, from
records, is not in it: that is the same with masks and without.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from fedpriv.federation.cost.attendance import attendances
from fedpriv.secagg.thresholds import Mode

if TYPE_CHECKING:
    from fedpriv.federation.cost.attendance import Attendance
    from fedpriv.federation.cost.setting import Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Numbers of operations; as unit costs, seconds for one of each.

    Attributes:
        agree: Key agreements (X25519), and checks that a key is sound.
        sign: Signatures (Ed25519).
        verify: Verified signatures.
        derive: Derived keys (HKDF).
        seal: Sealed or opened shares (AES-GCM).
        mask: Masks begun, whatever their length.
        mask_byte: Bytes of masks, expanded (AES-CTR) and added.
        deal: Products in dealing shares: holders × threshold.
        solve: Products in opening secrets: threshold × threshold, for every set of holders.
        part: Shares that are put together to a secret.
        row: Rows of tables in messages and states, written or read.
        number: Party numbers in lists, written or read.
        copy: Bytes of vectors that are copied.
        hash: Bytes of queries that enter the keys of the masks.
        member: Entries of rosters and cohorts in the digest that binds a round.
        message: Messages of the protocol, whatever is in them.
        draw: Integers of noise.
    """

    agree: float = 0.0
    sign: float = 0.0
    verify: float = 0.0
    derive: float = 0.0
    seal: float = 0.0
    mask: float = 0.0
    mask_byte: float = 0.0
    deal: float = 0.0
    solve: float = 0.0
    part: float = 0.0
    row: float = 0.0
    number: float = 0.0
    copy: float = 0.0
    hash: float = 0.0
    member: float = 0.0
    message: float = 0.0
    draw: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(**{name: getattr(self, name) + getattr(other, name) for name in OPERATIONS})

    def seconds(self, units: Work) -> float:
        """Processor time, by what one of each takes."""
        return float(sum(getattr(self, name) * getattr(units, name) for name in OPERATIONS))


OPERATIONS = tuple(field.name for field in fields(Work))


def party_work(setting: Setting) -> Work:
    """All rounds and set-ups of a party that is always there."""
    total = _party_set_up(setting, setting.parties)
    for there in attendances(setting):
        total += _party_round(setting, there)
        if there.next_keyed:
            total += _party_set_up(setting, there.next_keyed)
    return total


def server_work(setting: Setting) -> Work:
    """All rounds and set-ups of the server."""
    total = _server_set_up(setting, setting.parties, setting.parties)
    for there in attendances(setting):
        total += _server_round(setting, there)
        if there.next_keyed:
            total += _server_set_up(setting, there.next_keyed, there.next_sharers)
    return total


def _party_set_up(setting: Setting, keyed: float) -> Work:
    """Steps 0 and 1; the state that they leave is written and read once more."""
    partners, dealt = setting.partners(keyed), setting.kept(keyed)
    return Work(
        agree=2 * partners + 4,  # its own two public keys, twice
        sign=1,
        verify=partners,
        derive=dealt,
        seal=dealt,
        deal=(dealt + 1) * setting.threshold,
        row=4 * partners + 3 * dealt,
        number=3 * setting.parties + 2 * setting.holders,
        member=4 * setting.parties,
        message=2,
    )


def _party_round(setting: Setting, there: Attendance) -> Work:
    """Steps 2 to 4."""
    active = setting.mode is Mode.ACTIVE
    masks = setting.partners(there.sharers) + 1
    held = setting.kept(there.sharers) + setting.own_share
    messages = 3 if active else 2
    lists = (3 if active else 2) * there.sharers + 2 * setting.parties
    return Work(
        sign=1 if active else 0,
        verify=there.signers if active else 0.0,
        derive=masks + held,
        seal=held,
        mask=masks,
        mask_byte=masks * setting.answer_bytes,
        # Delivered, kept from message to message, revealed; the links of the next round with them.
        row=held * (1 + 2 * messages)
        + 2 * messages * setting.partners(there.next_keyed or 1)
        + (there.signers if active else 0.0),
        number=lists * (1 + messages),
        copy=(6 + 4 * messages) * setting.answer_bytes,
        hash=setting.query_bytes + 8 * setting.dimension,
        member=2 * messages * setting.parties,
        message=messages,
        draw=setting.dimension if setting.noise_at == "parties" else 0.0,
    )


def _server_set_up(setting: Setting, keyed: float, sharers: float) -> Work:
    return Work(
        agree=2 * keyed,
        verify=keyed,
        row=2 * keyed * setting.partners(keyed) + sharers * setting.kept(keyed) * 2,
        number=setting.parties * (setting.parties + setting.holders),
        member=2 * setting.parties,
        message=keyed + sharers,
    )


def _server_round(setting: Setting, there: Attendance) -> Work:
    active = setting.mode is Mode.ACTIVE
    held = setting.kept(there.sharers) + setting.own_share
    gone = there.sharers - there.answers
    opened = gone * setting.partners(there.answers + 1)
    masks = there.answers + opened
    sets = 1.0 if setting.complete else there.sharers
    signed = there.signers**2 if active else 0.0
    exchanges = 3 if active else 2
    return Work(
        agree=opened + gone,
        verify=there.signers if active else 0.0,
        derive=masks,
        mask=masks,
        mask_byte=masks * setting.answer_bytes,
        solve=sets * setting.threshold**2,
        part=there.sharers * setting.threshold,
        row=2 * there.sharers * held + 2 * there.revealers * held + signed,
        number=there.sharers**2 + there.answers**2,
        copy=4 * there.answers * setting.answer_bytes,
        hash=setting.query_bytes + 8 * setting.dimension,
        message=setting.parties * exchanges,
    )
