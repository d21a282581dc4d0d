"""`fedpriv deploy add|expel|rotate|accept`, with every member in a directory of its own."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Barrier, BrokenBarrierError, Thread
from typing import TYPE_CHECKING

import pytest

from fedpriv._toml import to_toml
from fedpriv.federation.deployed.policy import read_party
from fedpriv.simulations.deploy import keys
from fedpriv.simulations.deploy.backups.backup import back_up
from fedpriv.simulations.deploy.backups.newest import Assurance
from fedpriv.simulations.deploy.backups.restore import restore
from fedpriv.simulations.deploy.federation import parse_federation
from fedpriv.simulations.deploy.federation_budget import federation_ledger
from fedpriv.simulations.deploy.folders import ServerFolder
from fedpriv.simulations.deploy.founding import found, join
from fedpriv.simulations.deploy.health.doctor import examine
from fedpriv.simulations.deploy.members import changes, epochs, pending
from fedpriv.simulations.deploy.members.bundles import read_invitation
from fedpriv.simulations.deploy.members.changes import (
    add,
    all_epochs,
    expel,
    open_runs,
    rotate_server,
)
from fedpriv.simulations.deploy.members.epochs import accept, accepted_roster
from fedpriv.simulations.deploy.members.membership import nodes, wait_until_up
from fedpriv.simulations.deploy.members.new_keys import rotate_party
from fedpriv.simulations.deploy.members.roster import (
    identity_fingerprint,
    read_roster,
    write_roster,
)
from fedpriv.simulations.deploy.processes import processes, tail
from fedpriv.simulations.deploy.programs import server_programs
from fedpriv.simulations.deploy.run.submission import new_run
from fedpriv.simulations.experiment.file import read_experiment
from fedpriv.simulations.run.files import private
from tests.simulations.deploy.conftest import NAMES, Founder, federation_values

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.simulations.deploy.folders import PartyFolder
    from fedpriv.simulations.deploy.members.epochs import Accepted
    from fedpriv.simulations.deploy.members.roster import Roster
    from tests.simulations.conftest import Command
    from tests.simulations.deploy.conftest import Starter


@dataclass
class Consortium:
    """A server and parties that do not see each other's disks."""

    root: Path
    server: ServerFolder
    homes: dict[str, PartyFolder]

    @property
    def roster(self) -> Roster:
        return read_roster(self.server.roster)

    def join(self, name: str) -> PartyFolder:
        self.homes[name] = join(self.server.invitation, name, self.root / name, records=10)
        return self.homes[name]

    def add(self, *names: str, lost: bool = False) -> Roster:
        return add([self.homes[name].bundle for name in names], self.server.root, lost=lost)

    def accept(self, *names: str) -> list[Accepted]:
        """Have parties accept the newest roster, or all of them."""
        return [
            accept(self.homes[name], [self.roster], fingerprint=self.roster.fingerprint)
            for name in names or self.homes
        ]

    def held(self, name: str) -> Roster:
        return accepted_roster(read_party(self.homes[name].policy))

    def identity(self, name: str) -> bytes:
        return keys.identity_public(keys.read_identity(self.homes[name].identity))


@pytest.fixture
def four(tmp_path: Path) -> Consortium:
    """Four parties that joined with keys of their own, and accepted epoch 2."""
    founded = found(
        parse_federation(federation_values()), tmp_path / "coordinator", party_keys=False
    )
    consortium = Consortium(tmp_path, founded.server, {})
    for name in (*NAMES, "east"):
        consortium.join(name)
    consortium.add(*consortium.homes)
    consortium.accept()
    return consortium


def test_a_party_answers_nothing_before_it_has_accepted_a_roster_by_its_fingerprint(
    four: Consortium, fedpriv: Command
) -> None:
    centre = four.join("centre")
    roster = four.add("centre")
    assert roster.epoch == 3
    with pytest.raises(ValueError, match="no roster was accepted by 'centre' yet"):
        four.held("centre")
    command = ("deploy", "accept", four.server.roster, "--party", centre.root, "--fingerprint")
    wrong = fedpriv(*command, four.roster.fingerprint[:-1] + "g")
    assert wrong.code == 2
    assert "accept none before you know why" in wrong.message
    assert four.roster.fingerprint not in wrong.err  # or somebody would copy it from there
    with pytest.raises(ValueError, match="no roster was accepted"):
        four.held("centre")
    done = fedpriv(*command, four.roster.fingerprint.upper().replace(" ", "-"))
    assert done.code == 0, done.err
    assert "accepted epoch 3" in done.out
    assert "north, records: 10" in done.out
    assert "Tolerates 1 party colluding with the server and 1 missing." in done.out
    assert four.held("centre") == roster


def test_a_roster_that_is_copied_into_a_party_is_noticed_and_can_be_accepted_from_there(
    four: Consortium,
) -> None:
    four.join("centre")
    new = four.add("centre")
    north = four.homes["north"]
    write_roster(north.roster, new)
    with pytest.raises(ValueError, match=r"not the roster that was accepted, epoch 2.*accept"):
        four.held("north")
    accept(north, [read_roster(north.roster)], fingerprint=new.fingerprint)
    assert four.held("north") == new


def test_a_party_that_the_federation_file_does_not_list_comes_on_the_second_day(
    four: Consortium, fedpriv: Command
) -> None:
    before = four.roster
    four.join("centre")
    done = fedpriv("deploy", "add", four.homes["centre"].bundle, "--server", four.server.root)
    assert done.code == 0, done.err
    assert "5 parties, active. Tolerates 1 party colluding with the server" in done.out
    assert four.roster.fingerprint in done.out
    assert four.roster.members[:4] == before.members
    (accepted,) = four.accept("north")
    assert accepted.changes == ("new: centre, records: 10",)
    assert not accepted.new_keys


def test_who_is_expelled_leaves_no_gap_and_the_others_their_numbers(
    four: Consortium, fedpriv: Command
) -> None:
    four.join("centre")
    four.add("centre")
    numbers = {name: four.roster.permanent_number(name) for name in four.homes}
    done = fedpriv("deploy", "expel", "south", "--server", four.server.root)
    assert done.code == 0, done.err
    assert "4 parties, active." in done.out
    roster = four.roster
    assert {name: roster.permanent_number(name) for name in four.homes} == numbers
    assert roster.names == ("north", "west", "east", "centre")
    assert [roster.number(name) for name in roster.names] == [0, 1, 2, 3]
    assert len(roster.sizes) == len(roster.identities) == 4
    assert not (four.server.nodes / "south.pub").exists()
    with pytest.raises(ValueError, match="'south' was expelled in epoch 4"):
        roster.number("south")
    with pytest.raises(ValueError, match="takes another name"):
        four.add("south")
    assert expel("south", four.server.root) == roster  # once is for good


def test_a_party_that_missed_an_epoch_needs_all_rosters_in_between(
    four: Consortium, fedpriv: Command
) -> None:
    four.join("centre")
    four.add("centre")
    expel("south", four.server.root)
    with pytest.raises(ValueError, match="epoch 4 does not follow epoch 2: give the rosters"):
        four.accept("north")
    assert four.held("north").epoch == 2
    rosters = sorted(four.server.rosters.glob("*.toml"))
    assert len(rosters) == 4
    done = fedpriv(
        "deploy", "accept", *rosters, "--fingerprint", four.roster.fingerprint,
        "--party", four.homes["north"].root,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "new: centre" in done.out
    assert "south is expelled" in done.out
    assert four.held("north") == four.roster
    assert four.homes["south"].root.exists()
    accept(four.homes["south"], all_epochs(four.server), fingerprint=four.roster.fingerprint)
    with pytest.raises(ValueError, match="was expelled"):
        four.held("south").number("south")


def test_the_server_cannot_lead_two_parties_into_two_histories(four: Consortium) -> None:
    """It shows a fifth party to one of them only; from then on neither can follow the other."""
    honest = read_roster(four.server.roster)
    four.join("centre")
    shown = four.add("centre")
    accept(four.homes["north"], [shown], fingerprint=shown.fingerprint)
    write_roster(four.server.roster, honest)
    four.join("shadow")
    other = four.add("shadow")
    assert other.epoch == shown.epoch
    accept(four.homes["west"], [other], fingerprint=other.fingerprint)
    with pytest.raises(ValueError, match="another epoch 3 than the accepted one"):
        accept(four.homes["west"], [shown], fingerprint=shown.fingerprint)
    with pytest.raises(ValueError, match="two rosters are about"):
        accept(four.homes["west"], [shown.successor()], fingerprint=shown.successor().fingerprint)
    assert four.held("west") == other


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


def test_nobody_sits_in_the_place_of_a_party_that_knows_its_own_key(four: Consortium) -> None:
    """A server that claims that a key was lost convinces others at most, and is shown to them."""
    copy = four.root / "copy"
    shutil.copytree(four.homes["north"].root, copy)
    impostor = type(four.homes["north"])(copy)
    rotate_party(impostor, lost=True)
    forged = add([impostor.bundle], four.server.root, lost=True)
    with pytest.raises(ValueError, match="somebody else would sit in this party's place"):
        accept(four.homes["north"], [forged], fingerprint=forged.fingerprint)
    assert four.held("north").epoch == 2


@pytest.mark.parametrize("records", [5, 11])
def test_nobody_states_the_records_of_a_party_but_itself(four: Consortium, records: int) -> None:
    """Under add-remove the guarantee rests on the number, and nobody has signed it in a roster."""
    row = four.roster.row("north")
    forged = four.roster.successor(replace(row, records=records))
    with pytest.raises(ValueError, match=f"states {records} records for 'north', which this party"):
        accept(four.homes["north"], [forged], fingerprint=forged.fingerprint)
    assert four.held("north") == four.roster
    (said,) = accept(four.homes["south"], [forged], fingerprint=forged.fingerprint).changes
    assert said == f"north has {records} records, after 10"


@pytest.mark.parametrize("moment", ["install", "write_roster"])
def test_accepting_again_mends_what_a_crash_left_half_done(
    four: Consortium, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    north = four.homes["north"]
    rotate_party(north)
    new = four.add("north")
    with monkeypatch.context() as crash:
        real, calls = getattr(epochs, moment), []

        def crashing(*arguments: object, **options: object) -> object:
            calls.append(arguments)
            if moment == "install" or len(calls) == 2:  # the pin is written, the file is not
                raise KeyboardInterrupt
            return real(*arguments, **options)

        crash.setattr(epochs, moment, crashing)
        with pytest.raises(KeyboardInterrupt):
            accept(north, [new], fingerprint=new.fingerprint)
    accept(north, [new], fingerprint=new.fingerprint)
    assert four.held("north") == new
    assert four.identity("north") == new.row("north").identity
    assert keys.node_public(keys.read_node_key(north.node_key)) == new.row("north").node


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


def test_who_was_expelled_when_the_command_was_killed_is_expelled_by_repeating_it(
    four: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keys of its node stayed where they were, and the command said that it was done."""
    with monkeypatch.context() as crash:
        crash.setattr(pending, "install", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            expel("east", four.server.root)
    assert (four.server.nodes / "east.pub").exists()
    new = four.roster
    assert expel("east", four.server.root) == new
    assert not (four.server.nodes / "east.pub").exists()
    four.join("centre")
    four.add("centre")
    with pytest.raises(ValueError, match="'east' was expelled in epoch 3"):
        expel("east", four.server.root)


def test_two_changes_at_once_are_two_epochs(
    four: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both made epoch 3 of epoch 2, and what was written last undid the other."""
    four.join("centre")
    other = Thread(target=expel, args=("east", four.server.root))
    feasible = changes._require_feasible

    def meanwhile(folder: ServerFolder, old: Roster, new: Roster) -> None:
        if not other.ident:
            other.start()
            other.join(0.5)  # it waits for its turn
        feasible(folder, old, new)

    monkeypatch.setattr(changes, "_require_feasible", meanwhile)
    assert four.add("centre").epoch == 3
    other.join()
    assert four.roster.epoch == 4
    assert four.roster.names == ("north", "south", "west", "centre")
    north = four.homes["north"]
    accept(north, all_epochs(four.server), fingerprint=four.roster.fingerprint)


def test_a_server_that_is_put_back_on_an_empty_machine_has_the_rosters_of_all_epochs(
    four: Consortium, tmp_path: Path
) -> None:
    """A party that missed an epoch needs the roster of each, which only the server has."""
    federation_ledger(four.server, four.server.runs)
    backup, place = tmp_path / "server.backup", tmp_path / "elsewhere"
    back_up(four.server, backup, keys=True)
    restore(backup, place, Assurance(lost=True))
    found = all_epochs(ServerFolder(place))
    assert [roster.epoch for roster in found] == [1, 2]
    assert found == all_epochs(four.server)


def test_a_change_after_which_no_sum_is_safe_is_refused(four: Consortium, fedpriv: Command) -> None:
    policy = four.server.federation
    policy.write_text(policy.read_text().replace("[policy]\n", "[policy]\nmin_parties = 4\n"))
    before = four.roster
    done = fedpriv("deploy", "expel", "south", "--server", four.server.root)
    assert done.code == 2
    assert "with 3 parties the proposed policy cannot be met" in done.message
    assert four.roster == before
    assert (four.server.nodes / "south.pub").exists()


def test_a_bundle_that_changes_nothing_makes_no_epoch(four: Consortium) -> None:
    before = four.roster
    (four.server.nodes / "north.pub").unlink()
    assert four.add("north") == before
    assert (four.server.nodes / "north.pub").exists()  # but mends what is missing


def test_nothing_changes_while_a_run_is_open(
    deployment: Founder, tmp_path: Path, fedpriv: Command
) -> None:
    made = deployment((*NAMES, "east"))
    folder, before = made.server, read_roster(made.server.roster)
    experiment = tmp_path / "experiment.toml"
    experiment.write_text(
        to_toml(
            {
                "data": {"schema": str(folder.schema)},
                "strategy": {"name": "gradient-perturbation", "rounds": 1},
                "privacy": {"epsilon": 1.0},
                "run": {"engine": "deployment", "secure_aggregation": "active"},
            }
        )
    )
    run = new_run(read_experiment(str(experiment)), folder)
    assert open_runs(folder) == (run,)
    east = join(folder.invitation, "centre", tmp_path / "centre", records=5)
    for command in (
        ("expel", "south", "--server", folder.root),
        ("add", east.bundle, "--server", folder.root),
        ("rotate", folder.root),
    ):
        done = fedpriv("deploy", *command)
        assert done.code == 2
        assert "is open, and bound to the roster" in done.message
    assert read_roster(folder.roster) == before
    closed = private(run) / "cancelled.json"
    closed.write_text("{}")
    assert open_runs(folder) == ()
    assert expel("south", folder.root).epoch == before.epoch + 1
    closed.unlink()
    (run / "result.json").write_text("{}")
    assert open_runs(folder) == ()


def test_parties_beside_the_server_follow_it_and_are_named_if_they_cannot(
    deployment: Founder, fedpriv: Command
) -> None:
    """Where the coordinator made all keys; it does not act for a party that pins another server."""
    made = deployment((*NAMES, "east"))
    new = expel("south", made.server.root)
    for home in made.parties:
        assert accepted_roster(read_party(home.policy)) == new
    done = fedpriv("deploy", "rotate", made.server.root)
    assert done.code == 0, done.err
    assert "not accepted yet: east, north, south, west" in done.out
    for home in made.parties:
        assert accepted_roster(read_party(home.policy)) == new


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
