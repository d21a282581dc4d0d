"""New keys of members, by `fedpriv deploy rotate`: stated by all, used at once, pinned by hand."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier, BrokenBarrierError
from typing import TYPE_CHECKING

import pytest

from fedpriv.simulations.deploy import keys
from fedpriv.simulations.deploy.health.doctor import examine
from fedpriv.simulations.deploy.members import pending
from fedpriv.simulations.deploy.members.bundles import read_invitation
from fedpriv.simulations.deploy.members.changes import rotate_server
from fedpriv.simulations.deploy.members.membership import nodes, wait_until_up
from fedpriv.simulations.deploy.members.new_keys import rotate_party
from fedpriv.simulations.deploy.members.roster import identity_fingerprint
from fedpriv.simulations.deploy.processes import processes, tail
from fedpriv.simulations.deploy.programs import server_programs

if TYPE_CHECKING:
    from pathlib import Path

    from tests.simulations.conftest import Command
    from tests.simulations.deploy.conftest import Starter
    from tests.simulations.deploy.consortium import Consortium


def test_two_who_make_new_keys_at_once_state_the_same_ones(
    four: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both found none: one of them ended with an error, and perhaps half a bundle."""
    north = four.homes["north"]
    write, both = keys.write_private, Barrier(2)

    def slowly(path: Path, data: bytes) -> None:
        with suppress(BrokenBarrierError):
            both.wait(0.5)
        write(path, data)

    monkeypatch.setattr(keys, "write_private", slowly)
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(rotate_party, (north, north))
    assert one == other
    assert pending.pending_identity(north) == one.identity


def test_new_keys_are_used_from_the_epoch_that_has_them(four: Consortium, fedpriv: Command) -> None:
    north, old = four.homes["north"], four.identity("north")
    node = north.node_key.read_bytes()
    done = fedpriv("deploy", "rotate", north.root)
    assert done.code == 0, done.err
    again = north.bundle.read_bytes()
    rotate_party(north)
    assert north.bundle.read_bytes() == again  # the same keys: the first bundle may be on its way
    assert four.identity("north") == old
    assert four.held("north").epoch == 2
    new = four.add("north")
    assert new.row("north").identity != old
    (at_west,) = four.accept("west")
    assert at_west.changes == ("north has new keys, signed by its old ones",)
    (own,) = four.accept("north")
    assert own.new_keys
    assert four.identity("north") == new.row("north").identity
    assert keys.node_public(keys.read_node_key(north.node_key)) == new.row("north").node
    assert north.node_key.read_bytes() != node
    assert keys.too_open(north.identity) is None
    assert not list(north.pending.iterdir())
    assert (four.server.nodes / "north.pub").read_text().strip() == new.row("north").node
    failed = {check.name for check in examine(north, network=False) if not check.passed}
    assert failed == {"schema", "records"}  # which this party has not brought


def test_keys_that_are_lost_are_replaced_for_all_to_see(four: Consortium, fedpriv: Command) -> None:
    north = four.homes["north"]
    north.identity.unlink()
    refused = fedpriv("deploy", "rotate", north.root)
    assert refused.code == 2
    assert fedpriv("deploy", "rotate", north.root, "--lost").code == 0
    with pytest.raises(ValueError, match=r"not signed by its old ones.*add --lost"):
        four.add("north")
    assert four.roster.epoch == 2
    done = fedpriv("deploy", "add", north.bundle, "--server", four.server.root, "--lost")
    assert done.code == 0, done.err
    shown = fedpriv(
        "deploy", "accept", four.server.roster, "--fingerprint", four.roster.fingerprint,
        "--party", four.homes["west"].root,
    )  # fmt: skip
    assert shown.code == 0, shown.err
    assert "north has new keys, NOT signed by its old ones" in shown.out
    (own,) = four.accept("north")
    assert own.new_keys
    assert four.identity("north") == four.roster.row("north").identity


def test_a_new_identity_of_the_server_is_pinned_by_every_party_itself(
    four: Consortium, fedpriv: Command
) -> None:
    old = four.roster.server
    assert fedpriv("deploy", "rotate", four.server.root, "--lost").code == 2
    done = fedpriv("deploy", "rotate", four.server.root)
    assert done.code == 0, done.err
    new = four.roster
    assert new.server == keys.identity_public(keys.read_identity(four.server.identity)) != old
    assert identity_fingerprint(new.server) in done.out
    assert read_invitation(four.server.invitation).identity == new.server
    with pytest.raises(ValueError, match=r"policy\.server_identity .* write it there"):
        four.accept("north")
    policy = four.homes["north"].policy
    text = policy.read_text()
    assert identity_fingerprint(old) in text
    policy.write_text(text.replace(identity_fingerprint(old), identity_fingerprint(new.server)))
    (accepted,) = four.accept("north")
    assert accepted.changes == ("the server has a new identity, signed by its old one",)


def test_a_rotation_of_the_server_that_was_interrupted_is_finished_by_rotating_again(
    four: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as crash:
        crash.setattr(pending, "install", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            rotate_server(four.server)
    new = four.roster
    assert new.server != keys.identity_public(keys.read_identity(four.server.identity))
    assert {check.name for check in examine(four.server) if not check.passed} == {"identity"}
    assert rotate_server(four.server) == new
    assert new.server == keys.identity_public(keys.read_identity(four.server.identity))
    assert [check for check in examine(four.server) if not check.passed] == []


def test_a_server_that_is_up_admits_who_is_added_and_whose_keys_are_new(
    four: Consortium, running: Starter, fedpriv: Command
) -> None:
    """On a real SuperLink, at once: by the key of the roster, and by the old one no more."""
    running(server_programs(four.server)[:1])
    (superlink,) = processes(four.server)
    assert wait_until_up(four.server, superlink, seconds=120), tail(four.server, "superlink")
    four.join("centre")
    done = fedpriv("deploy", "add", four.homes["centre"].bundle, "--server", four.server.root)
    assert done.code == 0, done.err
    first = {state.name: state.node for state in nodes(four.server)}
    assert set(first) == set(four.homes)
    four.accept("centre")
    rotate_party(four.homes["centre"])
    done = fedpriv("deploy", "add", four.homes["centre"].bundle, "--server", four.server.root)
    assert done.code == 0, done.err
    second = {state.name: state.node for state in nodes(four.server) if state.name != "unknown"}
    assert set(second) == set(four.homes)
    assert {name for name in first if first[name] != second[name]} == {"centre"}
