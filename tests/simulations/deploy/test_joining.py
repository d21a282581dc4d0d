"""Joining a federation: with keys of one's own, by a bundle, under a schema that says it all."""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from fedpriv.data import DataError
from fedpriv.federation.deployed.policy import read_party
from fedpriv.simulations.deploy.federation import NODE_PORT, parse_federation, read_federation
from fedpriv.simulations.deploy.folders import read_node
from fedpriv.simulations.deploy.founding import found, join, rebundle
from fedpriv.simulations.deploy.keys import identity_public, read_identity
from fedpriv.simulations.deploy.members.bundles import invitation
from fedpriv.simulations.deploy.members.changes import add
from fedpriv.simulations.deploy.members.roster import read_roster, write_roster
from tests.simulations.deploy.conftest import LABEL, NAMES, Founder, federation_values
from tests.simulations.deploy.disks import mode, secrets_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.simulations.conftest import Command


def test_a_party_joins_with_its_own_keys_and_only_public_parts_travel(
    fedpriv: Command, federation_file: Path, tmp_path: Path
) -> None:
    root = tmp_path / "d"
    done = fedpriv("deploy", "init", federation_file, "--output", root, "--no-party-keys")
    assert done.code == 0, done.err
    assert not (root / "parties").exists()
    for name in NAMES:
        done = fedpriv(
            "deploy", "join", root / "server" / "invitation.toml",
            "--name", name, "--output", tmp_path / name, "--records", 10,
        )  # fmt: skip
        assert done.code == 0, done.err
        bundle = tmp_path / name / "bundle.toml"
        text = bundle.read_text()
        assert "PRIVATE" not in text
        known = {"version", "federation", "proof", "name", "identity", "node", "records"}
        assert set(re.findall(r"^(\w+) =", text, re.MULTILINE)) == known
        done = fedpriv("deploy", "add", bundle, "--server", root / "server")
        assert done.code == 0, done.err
    roster = read_roster(root / "server" / "roster.toml")
    assert roster.names == NAMES
    assert roster.epoch == 4
    assert roster.sizes == (10, 10, 10)
    assert roster.fingerprint in done.out
    for name, member in zip(NAMES, roster.members, strict=True):
        assert identity_public(read_identity(tmp_path / name / "identity.key")) == member.identity
        assert (tmp_path / name / "schema.toml").read_text()
        assert all(mode(path) == 0o600 for path in secrets_of(tmp_path / name))


def test_a_bundle_that_was_changed_on_its_way_is_refused(deployment: Founder) -> None:
    made = deployment()
    bundle = made.parties[0].bundle
    text = bundle.read_text()
    other = b64encode(read_roster(made.server.roster).identities[1]).decode()
    mine = b64encode(read_roster(made.server.roster).identities[0]).decode()
    for changed in (text.replace("records = 40", "records = 41"), text.replace(mine, other)):
        assert changed != text
        bundle.write_text(changed)
        with pytest.raises(ValueError, match="not signed by the identity in it"):
            add([bundle], made.server.root)
    bundle.write_text(text.replace('federation = "clinics"', 'federation = "banks"'))
    with pytest.raises(ValueError, match="is for the federation 'banks'"):
        add([bundle], made.server.root)


def test_nobody_takes_the_place_of_a_party(deployment: Founder, tmp_path: Path) -> None:
    made = deployment()
    before = read_roster(made.server.roster)
    impostor = join(made.server.invitation, "north", tmp_path / "impostor", records=40)
    with pytest.raises(ValueError, match="with other keys"):
        add([impostor.bundle], made.server.root)
    assert read_roster(made.server.roster) == before


def test_a_party_that_the_federation_file_does_not_list_can_join(
    deployment: Founder, tmp_path: Path
) -> None:
    made = deployment()
    before = read_roster(made.server.roster)
    east = join(made.server.invitation, "east", tmp_path / "east", records=30)
    assert read_node(east).port == NODE_PORT + 3
    assert read_party(east.policy).policy.min_parties == 3
    after = add([east.bundle], made.server.root)
    assert after.names == (*NAMES, "east")
    assert after.members[:3] == before.members
    assert (after.epoch, after.previous) == (before.epoch + 1, before.digest)
    assert (made.server.nodes / "east.pub").read_text().strip() == after.row("east").node


def test_a_roster_reads_back_and_pins_names_keys_sizes_and_order(
    deployment: Founder, tmp_path: Path
) -> None:
    roster = read_roster(deployment().server.roster)
    write_roster(tmp_path / "copy.toml", roster)
    assert read_roster(tmp_path / "copy.toml") == roster
    turned = replace(roster, members=roster.members[::-1])
    smaller = replace(roster, members=roster.members[:2])
    assert len({roster.fingerprint, turned.fingerprint, smaller.fingerprint}) == 3
    with pytest.raises(ValueError, match="the same identity"):
        roster.successor(replace(roster.members[1], name="twin", identity=roster.identities[0]))


def test_an_unfinished_roster_says_whose_records_are_missing(tmp_path: Path) -> None:
    founded = found(parse_federation(federation_values()), tmp_path / "d")
    with pytest.raises(ValueError, match="records of north, south, west are not in the roster"):
        _ = founded.roster.sizes


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"party": []}, "at least one"),
        ({"party": [{"name": "a"}, {"name": "a"}]}, "same name"),
        ({"party": [{"name": "../etc"}]}, "must be lower-case"),
        ({"server": {"address": "x", "port": 70000}}, "server.port must be at most 65535"),
        ({"server": {"adress": "x"}}, "Did you mean 'address'"),
    ],
)
def test_a_federation_file_is_checked_key_by_key(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_federation(federation_values(**change))


def test_public_bytes_of_identities_are_raw_ed25519_keys(deployment: Founder) -> None:
    folder = deployment().parties[0]
    key = read_identity(folder.identity).public_key()
    raw = key.public_bytes(Encoding.Raw, PublicFormat.Raw)
    assert folder.identity_public.read_text().strip() == b64encode(raw).decode()


SCHEMAS: dict[str, Callable[[str], str]] = {
    "label": lambda text: text.replace(LABEL, ""),
    "party": lambda text: f'party = "clinic"\n{text}',
    "missing": lambda text: f'missing = "drop"\n{text}',
}


@pytest.mark.parametrize("fault", SCHEMAS)
def test_no_federation_is_founded_joined_or_bundled_under_a_schema_that_leaves_facts_to_the_file(
    fault: str, deployment: Founder, tmp_path: Path
) -> None:
    made = deployment()
    schema = SCHEMAS[fault](made.server.schema.read_text())
    folder = made.parties[0]
    bundle = folder.bundle.read_bytes()
    folder.schema.write_text(schema)
    with pytest.raises(DataError, match=f"^schema: {fault}"):
        rebundle(folder)
    assert folder.bundle.read_bytes() == bundle
    made.server.schema.write_text(schema)
    federation = read_federation(made.server.federation)
    invited = invitation(federation, made.server)
    made.server.invitation.write_text(invited.to_toml())
    with pytest.raises(DataError, match=f"^schema: {fault}"):
        join(made.server.invitation, "north", tmp_path / "north")
    assert not (tmp_path / "north").exists()
    with pytest.raises(DataError, match=f"^schema: {fault}"):
        found(federation, tmp_path / "again")


@pytest.mark.parametrize(
    ("written", "changed", "private"),
    [
        ('adjacency = "replace-one"', 'adjacency = "add-remove"', "add-remove .* 'record'"),
        ('unit = "record"', 'unit = "party"', "replace-one .* 'party'"),
    ],
)
def test_where_it_is_private_a_bundle_states_a_public_number_and_not_the_true_one(
    deployment: Founder, written: str, changed: str, private: str
) -> None:
    folder = deployment().parties[0]
    text = folder.policy.read_text()
    assert text.count(written) == 1
    with pytest.raises(ValueError, match=r"records must be the number .* replace-one .* got 50"):
        rebundle(folder, records=50)
    folder.policy.write_text(text.replace(written, changed))
    with pytest.raises(ValueError, match=f"records must be given under {private}"):
        rebundle(folder)
    with pytest.raises(ValueError, match="records must be at least the number of records, got 39"):
        rebundle(folder, records=39)
    assert rebundle(folder, records=100).records == 100
    assert "100" in folder.bundle.read_text()
    assert "40" not in folder.bundle.read_text().partition("records")[2]
