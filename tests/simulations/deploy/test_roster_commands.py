"""Members who come and go, by `fedpriv deploy add|expel|accept`, each in a directory of its own."""

from __future__ import annotations

import shutil
from dataclasses import replace
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from fedpriv._toml import to_toml
from fedpriv.federation.deployed.policy import read_party
from fedpriv.simulations.deploy import keys
from fedpriv.simulations.deploy.backups.backup import back_up
from fedpriv.simulations.deploy.backups.newest import Assurance
from fedpriv.simulations.deploy.backups.restore import restore
from fedpriv.simulations.deploy.federation_budget import federation_ledger
from fedpriv.simulations.deploy.folders import ServerFolder
from fedpriv.simulations.deploy.founding import join
from fedpriv.simulations.deploy.members import changes, epochs, pending
from fedpriv.simulations.deploy.members.changes import add, all_epochs, expel, open_runs
from fedpriv.simulations.deploy.members.epochs import accept, accepted_roster
from fedpriv.simulations.deploy.members.new_keys import rotate_party
from fedpriv.simulations.deploy.members.roster import read_roster, write_roster
from fedpriv.simulations.deploy.run.submission import new_run
from fedpriv.simulations.experiment.file import read_experiment
from fedpriv.simulations.run.files import private
from tests.simulations.deploy.conftest import NAMES, Founder

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.simulations.deploy.members.roster import Roster
    from tests.simulations.conftest import Command
    from tests.simulations.deploy.consortium import Consortium


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
