"""Chains of rosters: which one may follow which, and what never changes."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedpriv.simulations.deploy.members.epochs import chain_changes, require_successor
from fedpriv.simulations.deploy.members.roster import Member, Roster, read_roster, write_roster
from fedpriv.simulations.deploy.members.rotation import Rotation, require_signed
from tests.simulations.deploy.rosters import Chain, node_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

OTHER = node_line(2**32)
STEPS = ("add", "expel", "rotate", "lose", "state", "rotate_server")


@st.composite
def chains(draw: st.DrawFn, *, least: int = 1) -> Chain:
    """Any history that a coordinator may make."""
    chain = Chain()
    for step in draw(st.lists(st.sampled_from(STEPS), min_size=least, max_size=6)):
        names = chain.last.names
        if step in ("add", "rotate_server") or not names:
            chain.rotate_server() if step == "rotate_server" else chain.add()
            continue
        name = draw(st.sampled_from(names))
        if step == "expel":
            chain.expel(name)
        elif step == "state":
            chain.state(name, draw(st.integers(1, 99)))
        else:
            chain.rotate(name, lost=step == "lose")
    return chain


@given(chain=chains(), at=st.integers(0, 6))
@settings(max_examples=60, deadline=None)
def test_a_history_of_changes_is_accepted_from_whatever_epoch_a_party_is_in(
    chain: Chain, at: int
) -> None:
    accepted = chain.rosters[min(at, len(chain.rosters) - 1)]
    chain_changes(accepted, chain.rosters)
    chain_changes(None, chain.rosters)


@given(chain=chains())
@settings(max_examples=60, deadline=None)
def test_permanent_numbers_never_shift_and_seats_are_those_that_are_left(chain: Chain) -> None:
    for old, new in pairwise(chain.rosters):
        for member in old.members:
            assert new.permanent_number(member.name) == old.permanent_number(member.name)
    gone = {member.name for member in chain.last.members if member.expelled is not None}
    assert chain.last.names == tuple(
        member.name for member in chain.last.members if member.name not in gone
    )
    for number, name in enumerate(chain.last.names):
        assert chain.last.number(name) == number
        assert chain.last.identities[number] == chain.last.row(name).identity
    for name in gone:
        with pytest.raises(ValueError, match="was expelled in epoch"):
            chain.last.number(name)


@given(chain=chains(least=2), data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_history_with_an_epoch_left_out_or_out_of_order_is_refused(
    chain: Chain, data: st.DataObject
) -> None:
    first, *later = chain.rosters
    gone = data.draw(st.integers(0, len(later) - 2))
    with pytest.raises(ValueError, match="does not follow epoch"):
        chain_changes(first, later[:gone] + later[gone + 1 :])
    turned = data.draw(st.permutations(later))
    assume(turned != later)
    with pytest.raises(ValueError, match="does not follow epoch"):
        chain_changes(first, turned)


@given(chain=chains(least=2), data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_fork_is_refused_wherever_it_branches_off(chain: Chain, data: st.DataObject) -> None:
    """Two histories part at some epoch: who accepted one never gets into the other."""
    at = data.draw(st.integers(0, len(chain.rosters) - 2))
    after = chain.rosters[at + 1]
    forked = chain.rosters[at].successor(
        Member(name="shadow", identity=b"s" * 32, node=OTHER, records=1)
    )
    require_successor(chain.rosters[at], forked)
    with pytest.raises(ValueError, match="another epoch"):
        chain_changes(after, [forked])
    with pytest.raises(ValueError, match="two rosters are about"):
        chain_changes(after, [forked.successor()])
    with pytest.raises(ValueError, match="there is no way back"):
        chain_changes(chain.last.successor(), [chain.last])


ALTERED: dict[str, tuple[Callable[[Roster, Member], Any], str]] = {
    "another identity": (
        lambda r, m: r.successor(replace(m, identity=b"x" * 32)),
        "its row does not say so",
    ),
    "another node key": (
        lambda r, m: r.successor(replace(m, node=OTHER)),
        "its row does not say so",
    ),
    "another name": (
        lambda r, m: exchanged(r, m, replace(m, name="shadow")),
        "is not where it was",
    ),
    "no records": (
        lambda r, m: r.successor(replace(m, records=None)),
        "does not state its records any more",
    ),
    "a row less": (lambda r, m: exchanged(r, m, *()), "has lost a row"),
    "rows in another order": (lambda r, m: exchanged(r, m, None, m), "is not where it was"),
    "expelled before it was": (
        lambda r, m: r.successor(replace(m, expelled=2)),
        "once and for good",
    ),
    "a newcomer that was expelled": (
        lambda r, _: r.successor(newcomer(expelled=2)),
        "is new in epoch 4, and has a past",
    ),
    "a newcomer with a past": (
        lambda r, m: r.successor(newcomer(rotation=unsigned(r, b"o" * 32))),
        "is new in epoch 4, and has a past",
    ),
    "another server": (lambda r, _: r.successor(server=b"x" * 32), "another server"),
    "a server that lost its key": (
        lambda r, _: r.successor(server=b"x" * 32, server_rotation=unsigned(r, r.server)),
        "not signed by its old one",
    ),
    "keys that nobody signed": (
        lambda r, m: r.successor(
            replace(
                m,
                identity=b"x" * 32,
                node=OTHER,
                rotation=unsigned(r, m.identity),
            )
        ),
        "not signed as they must be",
    ),
}


def unsigned(roster: Roster, replaced: bytes) -> Rotation:
    return Rotation(replaced=replaced, proof=bytes(64), epoch=roster.epoch + 1)


def newcomer(**changes: Any) -> Member:
    return Member(name="shadow", identity=b"s" * 32, node=OTHER, **changes)


def exchanged(roster: Roster, member: Member, *others: Member | None) -> Roster:
    """The next epoch with a row taken out, and others in its place; None for the row after it."""
    at = roster.members.index(member)
    rest = list(roster.members[at + 1 :])
    between = [rest.pop(0) if other is None else other for other in others]
    members = (*roster.members[:at], *between, *rest)
    return replace(roster.successor(), members=tuple(members))


@pytest.mark.parametrize("what", ALTERED)
def test_a_row_that_was_altered_is_refused(what: str) -> None:
    chain = Chain()
    chain.add()
    chain.state("south", 20)
    alter, message = ALTERED[what]
    for name in ("north", "south"):
        altered = alter(chain.last, chain.last.row(name))
        with pytest.raises(ValueError, match=message):
            require_successor(chain.last, altered)
    chain_changes(chain.rosters[0], chain.rosters)


@given(chain=chains(least=2), data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_roster_of_the_past_cannot_be_rewritten(chain: Chain, data: st.DataObject) -> None:
    """Any other content has another digest, which the next epoch does not name."""
    at = data.draw(st.integers(0, len(chain.rosters) - 2))
    roster = chain.rosters[at]
    changed = replace(
        roster, members=(replace(roster.members[0], records=1000), *roster.members[1:])
    )
    assert changed.digest != roster.digest
    with pytest.raises(ValueError, match="two rosters are about"):
        require_successor(changed, chain.rosters[at + 1])


def test_who_is_expelled_stays_expelled_and_keeps_its_row() -> None:
    chain = Chain()
    chain.expel("south")
    row = chain.last.row("south")
    for back in (
        replace(row, expelled=None),
        replace(row, records=5),
        replace(row, expelled=chain.last.epoch + 1),
    ):
        with pytest.raises(ValueError, match="once and for good"):
            require_successor(chain.last, chain.last.successor(back))
    with pytest.raises(ValueError, match="the same identity"):
        chain.last.successor(replace(row, name="south-again", expelled=None))


def test_new_keys_are_signed_by_old_and_new_or_the_row_says_that_the_old_are_lost() -> None:
    chain = Chain()
    chain.rotate("north")
    assert [*chain_changes(chain.rosters[0], chain.rosters)] == [
        "north has new keys, signed by its old ones"
    ]
    row = chain.last.row("north")
    assert row.rotation is not None
    stripped = replace(row, rotation=replace(row.rotation, consent=b""))
    lost = chain.rosters[0].successor(stripped)
    (told,) = chain_changes(chain.rosters[0], [lost])
    assert "NOT signed by its old ones" in told  # what a server can do, and cannot hide
    assert "NOT signed" in chain_changes(None, [lost])[0]
    for forged in (
        replace(row.rotation, consent=bytes(64)),
        replace(row.rotation, proof=row.rotation.consent),
        replace(row.rotation, replaced=chain.last.row("south").identity),
        replace(row.rotation, epoch=1),
    ):
        with pytest.raises(ValueError, match=r"signed as they must be|does not say|is not\s|again"):
            require_successor(
                chain.rosters[0], chain.rosters[0].successor(replace(row, rotation=forged))
            )


def test_a_statement_of_new_keys_holds_for_one_party_one_node_and_one_old_identity() -> None:
    chain = Chain()
    chain.rotate("north")
    row = chain.last.row("north")
    assert row.rotation is not None
    require_signed(row.rotation, "north", identity=row.identity, node=row.node)
    for name, node in (("south", row.node), ("north", OTHER), ("", "")):
        with pytest.raises(ValueError, match="not signed as they must be"):
            require_signed(row.rotation, name, identity=row.identity, node=node)
    chain.rotate("north")  # the first statement is of no more use: another identity is in place
    with pytest.raises(ValueError, match="its row does not say"):
        require_successor(
            chain.last,
            chain.last.successor(
                replace(row, rotation=replace(row.rotation, epoch=chain.last.epoch + 1))
            ),
        )


def test_a_server_hands_over_to_a_new_identity_only_with_the_old_one() -> None:
    chain = Chain()
    chain.rotate_server()
    chain.rotate_server()
    assert len(chain_changes(chain.rosters[0], chain.rosters)) == 2
    chain.rotate_server(lost=True)
    with pytest.raises(ValueError, match="is not signed by its old one"):
        chain_changes(chain.rosters[0], chain.rosters)


def test_an_identity_that_was_replaced_does_not_come_back_beside_the_new_one() -> None:
    chain = Chain()
    old = chain.last.row("north")
    chain.rotate("north")
    with pytest.raises(ValueError, match="replaced is in the roster again"):
        chain.last.successor(replace(old, name="north-again"))
    with pytest.raises(ValueError, match="must not be the identity of a party"):
        chain.last.successor(server=chain.last.row("south").identity)


@given(chain=chains())
@settings(max_examples=40, deadline=None)
def test_every_roster_reads_back_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, chain: Chain
) -> None:
    path = tmp_path_factory.mktemp("rosters") / "roster.toml"
    for roster in chain.rosters:
        write_roster(path, roster)
        assert read_roster(path) == roster
        assert read_roster(path).digest == roster.digest
    assert len({roster.digest for roster in chain.rosters}) == len(chain.rosters)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("version = 2", "version = 1", "version must be 2, got 1"),
        ("epoch = 1", "epoch = 0", "epoch must be an integer of at least 1"),
        ("epoch = 1", "epoch = 2", "previous of epoch 2 must be the digest"),
        ('previous = ""', 'previous = "zz"', "hexadecimal"),
        ("epoch = 1", "epoch = 1\nage = 3", "nothing else"),
        ("records = 10", "records = 10\nexpelled = 1", "not among 2 to 1"),
        ("records = 10", "records = 10\nrotation = 3", "rotation needs"),
    ],
)
def test_a_roster_file_that_says_something_else_is_named_with_its_fault(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    path = tmp_path / "roster.toml"
    write_roster(path, Chain().last)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(ValueError, match=rf"^roster '.*roster.toml'.*{message}"):
        read_roster(path)
