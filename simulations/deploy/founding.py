"""Founding a federation, joining it, and renewing the server's certificate."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedpriv._durable import replace_file
from fedpriv._toml import parse_toml, read_toml, to_toml
from fedpriv.federation.deployed.policy import parse_party, read_party
from fedpriv.privacy.unit import Unit
from fedpriv.simulations.deploy import keys, templates
from fedpriv.simulations.deploy.certificates import (
    Issued,
    fingerprint,
    new_authority,
    new_server,
    read_certificate,
)
from fedpriv.simulations.deploy.federation import FederationFile, read_federation
from fedpriv.simulations.deploy.federation_budget import budget_table
from fedpriv.simulations.deploy.folders import PartyFolder, ServerFolder, server_folder
from fedpriv.simulations.deploy.members.bundles import (
    Invitation,
    invitation,
    read_invitation,
    write_bundle,
)
from fedpriv.simulations.deploy.members.changes import publish
from fedpriv.simulations.deploy.members.epochs import forget
from fedpriv.simulations.deploy.members.roster import Member, Roster, identity_fingerprint
from fedpriv.simulations.deploy.programs import write_connection

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fedpriv.data import Records
    from fedpriv.federation.deployed.policy import PartyFile

SCRIPT = 0o755


@dataclass(frozen=True, slots=True, kw_only=True)
class Founded:
    """The federation that `init` made.

    Attributes:
        server: The server's directory.
        parties: The directories of the parties whose keys were made here.
        roster: Who is in it.
        authority: The fingerprint of the CA certificate.
        identity: The fingerprint of the server's identity.
    """

    server: ServerFolder
    parties: tuple[PartyFolder, ...]
    roster: Roster
    authority: str
    identity: str


def found(
    federation: FederationFile, root: Path, *, party_keys: bool = True, force: bool = False
) -> Founded:
    """Make the directories of a federation.

    With ``party_keys`` the keys of all parties are made here, and whoever runs this could
    impersonate them: for a trial, or where the coordinator is trusted with it. Without, parties
    `join`, and the coordinator calls `changes.add`.

    Raises:
        ValueError: Something is in the way, and ``force`` is not given.
    """
    _require_room(root, force=force)
    if federation.schema_path is not None:
        _require_schema(Path(federation.schema_path).read_text(encoding="utf-8"))
    authority = new_authority(federation.name)
    signing = Ed25519PrivateKey.generate()
    _proposal(  # before anything
        federation, federation.party[0].name, authority.certificate, keys.identity_public(signing)
    )
    ca = keys.private_folder(root / "ca")
    (ca / "ca.crt").write_bytes(authority.certificate)
    keys.write_private(ca / "ca.key", authority.key, force=force)
    folder = _found_server(
        federation, keys.private_folder(root / "server"), authority, signing, force=force
    )
    invited = invitation(federation, folder)
    replace_file(folder.invitation, invited.to_toml())
    parties, members = [], []
    for party in federation.party if party_keys else ():
        home = PartyFolder(keys.private_folder(root / "parties" / party.name).resolve())
        member = _settle(invited, party.name, home, records=party.records, force=force)
        members.append(member)
        parties.append(home)
    roster = Roster(server=invited.identity, members=tuple(members))
    publish(folder, roster)
    return Founded(
        server=folder,
        parties=tuple(parties),
        roster=roster,
        authority=fingerprint(read_certificate(folder.ca)),
        identity=identity_fingerprint(roster.server),
    )


def join(
    source: Path,
    name: str,
    root: Path,
    *,
    records: int | None = None,
    port: int | None = None,
    force: bool = False,
) -> PartyFolder:
    """Make a party's directory with keys of its own, and the bundle for the coordinator."""
    _require_room(root, force=force)
    invited = read_invitation(source)
    if invited.schema is not None:
        _require_schema(invited.schema)
    folder = PartyFolder(keys.private_folder(root).resolve())
    _settle(invited, name, folder, records=records, port=port, force=force)
    return folder


def rebundle(folder: PartyFolder, *, records: int | None = None) -> Member:
    """Check a party's schema and records, and write its bundle anew.

    Args:
        folder: The party's.
        records: The public number of records that it states under add-remove adjacency, and for
            persons and parties, no less than it has. Where one record is exchanged for another, the
            number itself is public, and they are counted.
    """
    file = read_party(folder.policy)
    stated = _public_count(file, units_of(file, releasable_records(file)), records)
    identity = keys.read_identity(folder.identity)
    member = Member(
        name=file.name,
        identity=keys.identity_public(identity),
        node=keys.node_public(keys.read_node_key(folder.node_key)),
        records=stated,
    )
    federation = read_toml(folder.bundle, "bundle")["federation"]
    folder.bundle.write_text(write_bundle(member, identity, federation=federation))
    return member


def releasable_records(file: PartyFile) -> Records:
    """A party's records; `DataError` if its schema or a row cannot be used in a deployment.

    Whatever a run may ask to read is read here as well: columns without bounds that the policy
    lists, and the held-out table. Else a row there would show in whether the party answers, and
    nobody would have told its owner.
    """
    from fedpriv.data import read_schema, read_table, require_releasable
    from fedpriv.data.tables.magnitudes import read_magnitudes

    schema = read_schema(file.schema)
    require_releasable(schema, deployed=True)
    records = read_table(file.data, schema)[0].train
    if names := file.policy.suggest_bounds:
        read_magnitudes(file.data, schema, names)
    if file.test is not None:
        read_table(file.test, schema, empty=True)
    return records


def units_of(file: PartyFile, records: Records) -> int:
    """How many records a party has; or persons, if its budget is for those. Private."""
    if file.unit is not Unit.PERSON:
        return len(records)
    from fedpriv.data.persons import require_persons

    return len(set(require_persons(records).codes.tolist()))


def _public_count(file: PartyFile, count: int, stated: int | None) -> int:
    if file.counts_public:
        if stated not in (None, count):
            raise ValueError(
                f"records must be the number of records under replace-one adjacency, which is "
                f"public, got {stated}: leave it out, and they are counted."
            )
        return count
    if stated is None:
        raise ValueError(
            f"records must be given under {file.adjacency.value} adjacency for unit "
            f"{file.unit.value!r}, where the true number of {file.unit.counted} is private: a "
            "public number that this party will never exceed, for example --records 1000."
        )
    if stated < count:
        raise ValueError(
            f"records must be at least the number of {file.unit.counted}, got {stated}: choose a "
            "number that leaves room."
        )
    return stated


def renew(root: Path, *, names: Iterable[str] = ()) -> x509.Certificate:
    """Sign a new certificate for the server, with a new key, by the CA that parties trust."""
    folder = server_folder(root)
    ca = folder.root.parent / "ca"
    if not (ca / "ca.key").is_file():
        raise ValueError(f"{str(ca / 'ca.key')!r} is not there: bring the CA's key to renew.")
    federation = read_federation(folder.federation)
    section = federation.server
    authority = Issued(certificate=(ca / "ca.crt").read_bytes(), key=(ca / "ca.key").read_bytes())
    issued = new_server(authority, [section.address, *section.names, *names], days=section.days)
    keys.write_private(folder.key, issued.key, force=True)
    replace_file(folder.certificate, issued.certificate)
    return x509.load_pem_x509_certificate(issued.certificate)


def _found_server(
    federation: FederationFile,
    root: Path,
    authority: Issued,
    identity: Ed25519PrivateKey,
    *,
    force: bool,
) -> ServerFolder:
    folder, section = ServerFolder(root.resolve()), federation.server
    issued = new_server(authority, [section.address, *section.names], days=section.days)
    folder.ca.write_bytes(authority.certificate)
    folder.certificate.write_bytes(issued.certificate)
    keys.write_private(folder.key, issued.key, force=force)
    keys.write_private(folder.identity, keys.identity_private(identity), force=force)
    folder.identity_public.write_text(f"{b64encode(keys.identity_public(identity)).decode()}\n")
    keys.write_private(folder.secret, keys.new_secret(), force=force)
    values = {**federation.to_dict(), "budget": budget_table(federation)}
    if federation.schema_path is not None:
        folder.schema.write_text(Path(federation.schema_path).read_text(encoding="utf-8"))
        values["schema"] = folder.schema.name
    folder.federation.write_text(_federation_text(values))
    folder.runs.mkdir(exist_ok=True)
    folder.nodes.mkdir(exist_ok=True)
    for stale in folder.rosters.glob("*.toml"):
        stale.unlink()  # of the federation that was here before
    write_connection(folder)
    _script(folder.start, templates.start_script("server"))
    folder.unit.write_text(templates.unit("server", folder))
    return folder


def _settle(
    invited: Invitation,
    name: str,
    folder: PartyFolder,
    *,
    records: int | None = None,
    port: int | None = None,
    force: bool,
) -> Member:
    """Fill a party's directory; its public part."""
    federation, certificate = invited.federation, invited.ca.encode()
    node, identity = keys.new_node_key(), Ed25519PrivateKey.generate()
    member = Member(
        name=name,
        identity=keys.identity_public(identity),
        node=keys.node_public(node),
        records=records,
    )
    keys.write_private(folder.node_key, keys.node_private(node), force=force)
    keys.write_private(folder.identity, keys.identity_private(identity), force=force)
    keys.write_private(folder.secret, keys.new_secret(), force=force)
    folder.node_public.write_text(f"{member.node}\n")
    folder.identity_public.write_text(f"{member.to_dict()['identity']}\n")
    folder.ca.write_bytes(certificate)
    folder.policy.write_text(_proposal(federation, name, certificate, invited.identity))
    reached = {"server": federation.server.url, "port": port or federation.node_port(name)}
    folder.node.write_text(to_toml(reached))
    if invited.schema is not None:
        folder.schema.write_text(invited.schema)
    keys.private_folder(folder.root / "state")
    forget(folder.root / "state")
    _script(folder.start, templates.start_script("party"))
    folder.unit.write_text(templates.unit("party", folder))
    text = templates.party_checklist(
        name,
        authority=fingerprint(x509.load_pem_x509_certificate(certificate)),
        identity=identity_fingerprint(invited.identity),
    )
    folder.checklist.write_text(text)
    folder.bundle.write_text(write_bundle(member, identity, federation=federation.name))
    return member


def _proposal(federation: FederationFile, name: str, certificate: bytes, identity: bytes) -> str:
    """A party's file, which the party's own reader accepts."""
    values = templates.party_values(
        federation,
        name,
        server=fingerprint(x509.load_pem_x509_certificate(certificate)),
        identity=identity_fingerprint(identity),
    )
    text = templates.party_text(values)
    parse_party(parse_toml(text, "party file"), folder=Path())
    return text


def _federation_text(values: dict[str, object]) -> str:
    parties = values.pop("party")
    tables = [f"[[party]]\n{to_toml(party)}" for party in parties]  # type: ignore[attr-defined]
    return "\n".join([to_toml(values), *tables])


def _require_schema(text: str) -> None:
    """Before anything is made: under another schema, every party would refuse every run."""
    from fedpriv.data import parse_schema, require_releasable

    require_releasable(parse_schema(parse_toml(text, "schema")), deployed=True)


def _script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(SCRIPT)


def _require_room(root: Path, *, force: bool) -> None:
    if not force and root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise ValueError(
            f"{str(root)!r} exists and is not an empty directory: choose another one, or replace "
            "its keys with --force."
        )
