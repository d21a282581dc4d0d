"""Epochs of the roster: which next roster a party accepts, and which one it has accepted.

A party accepts a roster when a person has compared its fingerprint with another party. From then on
it is pinned in the party's state, and only its successor is accepted: one epoch later, naming the
digest of the accepted one, with every row where it was. What may change in a row is little: a party
is expelled, for good; it has new keys, which the old identity has signed or the row says that it
was lost; it states another number of records. So a server that shows two parties two rosters, or
swaps a key, is found out at the next comparison, whoever makes it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from fedpriv._durable import replace_file
from fedpriv._toml import read_toml
from fedpriv.federation.deployed.journal import Journal
from fedpriv.federation.deployed.policy import read_party
from fedpriv.simulations.deploy import keys
from fedpriv.simulations.deploy.members.pending import install, pending_identity
from fedpriv.simulations.deploy.members.roster import (
    identity_fingerprint,
    is_fingerprint_of,
    read_roster,
    write_roster,
)
from fedpriv.simulations.deploy.members.rotation import require_signed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from fedpriv.federation.deployed.policy import PartyFile
    from fedpriv.simulations.deploy.folders import PartyFolder
    from fedpriv.simulations.deploy.members.roster import Member, Roster

_PIN = "roster.toml"
_ACCEPT = 'fedpriv deploy accept ROSTER.toml --fingerprint "..."'


def require_successor(old: Roster, new: Roster) -> None:
    """Refuse a roster that does not follow from the one before.

    Raises:
        ValueError: An epoch is left out, it follows another roster, or a row was changed in a way
            that nobody may change it.
    """
    if new.epoch != old.epoch + 1:
        raise ValueError(
            f"epoch {new.epoch} does not follow epoch {old.epoch}: give the rosters of all epochs "
            "between, in order; the server has them in rosters/."
        )
    if new.previous != old.digest:
        raise ValueError(
            f"epoch {new.epoch} follows another epoch {old.epoch} than this one: two rosters are "
            "about. Find out, from the other parties, which one is right."
        )
    if len(new.members) < len(old.members):
        raise ValueError(f"epoch {new.epoch} has lost a row of epoch {old.epoch}.")
    for before, after in zip(old.members, new.members, strict=False):
        _require_same_row(before, after, epoch=new.epoch)
    for member in new.members[len(old.members) :]:
        if member.expelled is not None or member.rotation is not None:
            raise ValueError(f"{member.name!r} is new in epoch {new.epoch}, and has a past.")
    if (new.server, new.server_rotation) != (old.server, old.server_rotation):
        stated = new.server_rotation
        if stated is None or (stated.epoch, stated.replaced) != (new.epoch, old.server):
            raise ValueError(f"epoch {new.epoch} has another server, which does not say so.")
        if stated.lost:
            raise ValueError(
                "the server's new identity is not signed by its old one: if that was lost, the "
                "federation is founded anew."
            )
        require_signed(stated, "", identity=new.server)


def _require_same_row(before: Member, after: Member, *, epoch: int) -> None:
    if after == before or (before.expelled is None and after == replace(before, expelled=epoch)):
        return
    if before.name != after.name:
        raise ValueError(f"the row of {before.name!r} is not where it was in epoch {epoch - 1}.")
    if before.expelled is not None or after.expelled is not None:
        raise ValueError(
            f"the row of {before.name!r} must not change but for being expelled, once and for good."
        )
    kept = replace(before, records=after.records)
    stated = after.rotation
    if after == kept:
        if after.records is None:
            raise ValueError(f"{before.name!r} does not state its records any more.")
        return
    if stated is None or (stated.epoch, stated.replaced) != (epoch, before.identity):
        raise ValueError(
            f"the keys of {before.name!r} were changed in epoch {epoch}, and its row does not say "
            "so."
        )
    if after.node == before.node:
        raise ValueError(f"{before.name!r} has a new identity and its old node key.")
    require_signed(stated, after.name, identity=after.identity, node=after.node)


def differences(old: Roster, new: Roster) -> Iterator[str]:
    """What is different in the next epoch, for people."""
    for before, after in zip(old.members, new.members, strict=False):
        if after.expelled != before.expelled:
            yield f"{after.name} is expelled"
        if after.identity != before.identity:
            lost = after.rotation is not None and after.rotation.lost
            yield f"{after.name} has new keys, " + (
                f"NOT signed by its old ones, which are lost: ask {after.name} itself, through "
                "another channel, before you take part in a run"
                if lost
                else "signed by its old ones"
            )
        if after.records != before.records:
            yield f"{after.name} has {after.records} records, after {before.records}"
    for member in new.members[len(old.members) :]:
        yield f"new: {_described(member)}"
    if new.server != old.server:
        yield "the server has a new identity, signed by its old one"


def _described(member: Member) -> str:
    if member.expelled is not None:
        return f"{member.name}, expelled in epoch {member.expelled}"
    lost = member.rotation is not None and member.rotation.lost
    note = ", with new keys that its old ones, lost, have NOT signed" if lost else ""
    return f"{member.name}, records: {member.records or 'unknown'}{note}"


def accepted_roster(file: PartyFile) -> Roster:
    """The roster that a party has accepted, which the file in its directory must be.

    Raises:
        ValueError: None was accepted yet, or the file is another one.
    """
    place = file.state / _PIN
    if not has_accepted(file.state):
        raise ValueError(
            f"no roster was accepted by {file.name!r} yet: compare its fingerprint with another "
            f"party, then run `{_ACCEPT}`."
        )
    pinned = read_roster(place)
    same = file.roster.exists() and file.roster.read_bytes() == place.read_bytes()
    if not same and read_roster(file.roster) != pinned:
        raise ValueError(
            f"{str(file.roster)!r} is not the roster that was accepted, epoch {pinned.epoch}: if a "
            f"new one has come, compare its fingerprint with another party, then run `{_ACCEPT}`."
        )
    return pinned


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """What a party has accepted.

    Attributes:
        roster: The one that holds now.
        changes: What is different since the one before, for people.
        new_keys: Whether the party's own keys are new with it.
    """

    roster: Roster
    changes: tuple[str, ...]
    new_keys: bool


def pin(state: Path, roster: Roster) -> None:
    """Remember in a party's state that it has accepted a roster."""
    write_roster(state / _PIN, roster, mode=keys.PRIVATE_FILE)


def has_accepted(state: Path) -> bool:
    """Whether a party's state knows which roster it has accepted."""
    return (state / _PIN).exists()


def pinned_text(state: Path) -> str:
    """The roster that is pinned in a party's state, for its backup; empty if none is."""
    place = state / _PIN
    return place.read_text() if place.exists() else ""


def pin_again(state: Path, text: str) -> None:
    """Pin what `pinned_text` gave, where the state that had it is lost: never in a newer's place.

    Only its successors are accepted then, as before the loss.
    """
    if text and not (state / _PIN).exists():
        replace_file(state / _PIN, text, mode=keys.PRIVATE_FILE)


def forget(state: Path) -> None:
    """Forget the accepted roster: the party joins anew, with other keys."""
    (state / _PIN).unlink(missing_ok=True)


def accept(folder: PartyFolder, rosters: Sequence[Roster], *, fingerprint: str) -> Accepted:
    """Accept a roster at a party: the first one by its fingerprint, the next also by its history.

    A crash at any point is mended by accepting the same roster again.

    Args:
        folder: The party's.
        rosters: All since the accepted one, in order; the last one is to be accepted.
        fingerprint: Of the last one, as another party reads it out; in any groups.

    Raises:
        ValueError: It is another roster than that of the fingerprint, does not follow from the
            accepted one, or has another server or other keys for this party than it knows.
    """
    new = rosters[-1]
    if not is_fingerprint_of(fingerprint, new.digest):
        raise ValueError(
            f"--fingerprint is not that of the roster, epoch {new.epoch}: it has 64 digits, in any "
            "groups. If another party has read out these, it has another roster: accept none "
            "before you know why."
        )
    file = read_party(folder.policy)
    with Journal(file.state).held():
        pinned = file.state / _PIN
        old = read_roster(pinned) if pinned.exists() else None
        changes = chain_changes(old, rosters)
        _require_own(folder, file, new)
        _require_own_records(folder, new.row(file.name), old)
        pin(file.state, new)
        write_roster(file.roster, new)
        new_keys = install(folder, new.row(file.name).identity, file.identity)
    return Accepted(roster=new, changes=changes, new_keys=new_keys)


def chain_changes(old: Roster | None, rosters: Sequence[Roster]) -> tuple[str, ...]:
    """What has changed from the accepted roster to the last one, for people.

    Raises:
        ValueError: The last one is not the accepted one, and does not follow from it by the others.
    """
    if old is None:
        chain = list(rosters)
        changes = [_described(member) for member in rosters[-1].members]
    else:
        if any(each.epoch == old.epoch and each != old for each in rosters):
            raise ValueError(
                f"this is another epoch {old.epoch} than the accepted one: two rosters are about. "
                "Find out, from the other parties, which one is right."
            )
        if rosters[-1].epoch < old.epoch:
            raise ValueError(
                f"epoch {rosters[-1].epoch} is over: epoch {old.epoch} was accepted, and there is "
                "no way back."
            )
        chain = [old, *(each for each in rosters if each.epoch > old.epoch)]
        changes = [line for pair in pairwise(chain) for line in differences(*pair)]
    for before, after in pairwise(chain):
        require_successor(before, after)
    return tuple(changes)


def _require_own_records(folder: PartyFolder, row: Member, old: Roster | None) -> None:
    """Refuse a number of records that the party itself has not stated.

    Nobody signs it in the roster. Under add-remove adjacency a guarantee is proved up to twice the
    stated number: a coordinator that states a smaller one would take the ground from under it.
    """
    if not folder.bundle.exists():
        return
    known = {read_toml(folder.bundle, "bundle").get("party", {}).get("records")}
    if old is not None:
        known.add(old.row(row.name).records)
    if row.records not in known:
        raise ValueError(
            f"the roster states {row.records} records for {row.name!r}, which this party has not "
            f"stated: {str(folder.bundle)!r} has another number. Tell the coordinator, and the "
            "other parties."
        )


def _require_own(folder: PartyFolder, file: PartyFile, roster: Roster) -> None:
    """The server and this party must be in the roster as the party itself knows them."""
    present = identity_fingerprint(roster.server)
    if present != file.policy.server_identity:
        raise ValueError(
            f"the server of the roster is {present}, and policy.server_identity of "
            f"{str(folder.policy)!r} pins {file.policy.server_identity}. If the other parties "
            "confirm the new one, write it there, and accept again."
        )
    stated = roster.row(file.name).identity
    if stated == pending_identity(folder):
        return
    if keys.identity_public(keys.read_identity(file.identity)) != stated:
        raise ValueError(
            f"the roster has another identity for {file.name!r} than identity.key: somebody else "
            "would sit in this party's place. Tell the other parties; if the key was lost, state "
            "a new one with `fedpriv deploy rotate --lost`."
        )
