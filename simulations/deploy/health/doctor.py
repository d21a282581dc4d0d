"""The checks of `fedpriv doctor`: what is wrong with a member, before a run fails because of it."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING

from fedpriv.federation.deployed.journal import Journal
from fedpriv.federation.deployed.policy import read_party
from fedpriv.simulations.deploy import keys
from fedpriv.simulations.deploy.certificates import (
    belongs,
    days_left,
    fingerprint,
    names_of,
    read_certificate,
    signed_by,
)
from fedpriv.simulations.deploy.federation import read_federation
from fedpriv.simulations.deploy.flower import patches
from fedpriv.simulations.deploy.folders import PartyFolder, read_node
from fedpriv.simulations.deploy.founding import releasable_records, units_of
from fedpriv.simulations.deploy.health import reach
from fedpriv.simulations.deploy.health.checks import Check, Fault, examined
from fedpriv.simulations.deploy.health.roster_checks import (
    accepted,
    complete,
    node_keys,
    own_identity,
    own_node_key,
    own_seat,
    pinned_server,
    server_identity,
)
from fedpriv.simulations.deploy.processes import processes
from fedpriv.simulations.deploy.thresholds import thresholds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cryptography import x509

    from fedpriv.federation.deployed.budget_terms import BudgetTerms
    from fedpriv.federation.deployed.policy import PartyFile
    from fedpriv.simulations.deploy.folders import Folder, ServerFolder
    from fedpriv.simulations.deploy.health.checks import Examination

_SHOWN = 3
_SOON_DAYS = 30
_AGAIN = "run `fedpriv deploy init` again, or restore the file from a backup."
_FEWER = "have more parties, or ask for less: policy.colluding, policy.min_parties."
_RENEW = "run `fedpriv deploy renew` where the CA's key is, and restart the server."


def examine(
    folder: ServerFolder | PartyFolder, *, network: bool = True, now: datetime | None = None
) -> list[Check]:
    """Check all that a member's processes depend on; with ``network`` the server's side, too."""
    now = now or datetime.now(tz=UTC)
    if isinstance(folder, PartyFolder):
        return list(examined(_party(folder, network=network, now=now)))
    return list(examined(_server(folder, now=now)))


def _server(folder: ServerFolder, *, now: datetime) -> Iterator[Examination]:
    section = read_federation(folder.federation).server
    yield "versions", _versions, "install the versions that pyproject.toml of fedpriv names."
    yield "CA certificate", lambda: _valid(folder.ca, now), _AGAIN
    yield "server certificate", lambda: _server_certificate(folder, section.address, now), _RENEW
    yield (
        "permissions",
        lambda: _permissions(folder.key, folder.identity, folder.secret),
        _AGAIN,
    )
    yield "identity", lambda: server_identity(folder), _AGAIN
    yield "roster", lambda: complete(folder), "add every party: `fedpriv deploy add BUNDLE`."
    yield "thresholds", lambda: thresholds(folder), _FEWER
    yield "node keys", lambda: node_keys(folder), "run `fedpriv deploy add BUNDLE` again."
    yield "port", lambda: _port(folder, section.listens_on, section.port), "choose another port."
    yield (
        "ledger",
        lambda: ", ".join(_ledger(path) for path in sorted(folder.root.glob("*.ledger"))) or "none",
        "restore it from the newest backup: an old one forgets what was spent.",
    )


def _party(folder: PartyFolder, *, network: bool, now: datetime) -> Iterator[Examination]:
    yield "versions", _versions, "install the versions that pyproject.toml of fedpriv names."
    yield "policy", lambda: _policy(folder), f"correct {folder.policy}."
    yield "CA certificate", lambda: _pinned(folder, now), _AGAIN
    yield (
        "permissions",
        lambda: _permissions(folder.node_key, folder.identity, folder.secret),
        "run `fedpriv deploy join` again, and have the new bundle added.",
    )
    yield "roster", lambda: accepted(folder), "accept it: `fedpriv deploy accept ROSTER.toml`."
    yield "server identity", lambda: pinned_server(folder), "get the roster of the federation."
    yield "identity", lambda: own_identity(folder), "get the roster that your bundle was added to."
    yield "node key", lambda: own_node_key(folder), "get the roster that your bundle was added to."
    yield "thresholds", lambda: thresholds(folder), _FEWER
    yield "schema", lambda: _schema(folder), "correct the schema with all parties."
    yield "records", lambda: _records(folder), "correct the file, or the schema with all parties."
    yield (
        "ledger",
        lambda: _own_ledger(folder),
        "restore ledger and state together from the newest backup.",
    )
    yield "port", lambda: _port(folder, "127.0.0.1", read_node(folder).port), "edit node.toml."
    if network:
        yield "server", lambda: _reached(folder), "start the server, and open its port to you."
        yield "clock", lambda: _clock(folder), "start the server, and open its port to you."


def _versions() -> str:
    """The Flower that was tested passes, and its corrections if no part that is used differs."""
    installed, parts = patches.installed(), patches.read_parts()
    both = f"fedpriv {version('fedpriv')}, flwr {installed}"
    if installed == parts.tested:
        return f"{both}, the one tested"
    found = patches.differences(parts)
    said = f"{both}; tested was {parts.tested}, of which {len(found)} parts differ"
    if found or installed.rpartition(".")[0] != parts.tested.rpartition(".")[0]:
        which = "".join(f"; {each}" for each in found[:_SHOWN])
        raise Fault(f"{said}{which}", f"install flwr {parts.tested}.")
    return said


def _valid(path: Path, now: datetime, remedy: str = _AGAIN) -> str:
    certificate = read_certificate(path)
    left = days_left(certificate, now=now)
    until = f"{certificate.not_valid_after_utc:%Y-%m-%d}"
    if now < certificate.not_valid_before_utc:
        raise Fault(
            f"{path.name} is valid from {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC",
            "set the clock of this machine.",
        )
    if left < 0:
        raise Fault(f"{path.name} expired on {until}", remedy)
    note = ": renew it soon" if left < _SOON_DAYS else ""
    return f"valid until {until}{note}"


def _server_certificate(folder: ServerFolder, address: str, now: datetime) -> str:
    validity = _valid(folder.certificate, now, _RENEW)
    certificate = read_certificate(folder.certificate)
    if not signed_by(certificate, read_certificate(folder.ca)):
        raise Fault("server.crt was not signed by ca.crt", _RENEW)
    if not belongs(certificate, folder.key.read_bytes()):
        raise Fault("server.key is not the key of server.crt", _RENEW)
    _named(certificate, address)
    _named(certificate, "127.0.0.1")
    return validity


def _named(certificate: x509.Certificate, name: str) -> None:
    names = names_of(certificate)
    if name not in names:
        raise Fault(f"server.crt is for {', '.join(names) or 'no name'}, not for {name}", _RENEW)


def _permissions(*secrets: Path) -> str:
    for path in secrets:
        if not path.is_file():
            raise Fault(f"{path.name} is missing", _AGAIN)
        problem = keys.too_open(path)
        if problem is not None:
            what, _, remedy = problem.partition(": ")
            raise Fault(what, f"{remedy}; if others had access to it, make a new one.")
    return f"{len(secrets)} secret files, readable by their owner alone"


def _policy(folder: PartyFolder) -> str:
    file = read_party(folder.policy)
    policy = file.policy
    return (
        f"epsilon {file.budget.epsilon:g}, noise at least {policy.min_noise:g}, sums of at least "
        f"{policy.min_parties}, protection {policy.secure_aggregation}"
    )


def _pinned(folder: PartyFolder, now: datetime) -> str:
    validity = _valid(folder.ca, now)
    pinned, present = read_party(folder.policy).policy.server, read_certificate(folder.ca)
    if fingerprint(present) != pinned:
        raise Fault(
            f"ca.crt is {fingerprint(present)}, and policy.server pins another one",
            "find out, through another channel than the server, which one is right.",
        )
    return validity


def _schema(folder: PartyFolder) -> str:
    from fedpriv.data import read_schema, refusing_features, require_releasable

    schema = read_schema(read_party(folder.policy).schema)
    require_releasable(schema, deployed=True)
    refusing = refusing_features(schema)
    if not refusing:
        return "no value of a feature keeps this party from answering"
    shown = ", ".join(refusing[:3]) + (", …" if len(refusing) > 3 else "")
    return (
        f"one value of {shown} out of range or missing keeps this party from answering: "
        "out_of_range = 'clamp' and a fill would not let it show"
    )


def _records(folder: PartyFolder) -> str:
    file = read_party(folder.policy)
    records, (roster, number) = releasable_records(file), own_seat(folder)
    count, stated = units_of(file, records), roster.seats[number].records
    if stated is None or (count != stated if file.counts_public else count > stated):
        raise Fault(
            f"{count} {file.unit.counted}, and the roster says {stated}",
            "run `fedpriv deploy bundle`, and have the new bundle added.",
        )
    return f"{count} {file.unit.counted}, {records.X.shape[1]} features, as the schema says"


def _own_ledger(folder: PartyFolder) -> str:
    file = read_party(folder.policy)
    if not file.ledger.exists():
        if Journal(file.state).used:
            raise Fault(
                f"{file.ledger.name} is missing, and state/ has a record of answers that were "
                f"given",
                "restore ledger and state together from the newest backup.",
            )
        return "none yet: the first run makes it"
    _as_new_as_the_state(file)
    return _ledger(file.ledger, file.terms)


def _as_new_as_the_state(file: PartyFile) -> None:
    from fedpriv.privacy.ledger import Ledger

    mark = Journal(file.state).ledger
    if mark is None:
        return
    with Ledger.open(file.ledger, read_only=True) as ledger:
        head = ledger.hash_of(mark.rows)
    if head != mark.head.hex():
        raise Fault(
            f"{file.ledger.name} is older than state/, or is another ledger: it has forgotten what "
            "was spent",
            "put back its newest copy. Without one, what these records have left is not known, "
            "and they can answer nothing more.",
        )


def _ledger(path: Path, terms: BudgetTerms | None = None) -> str:
    from fedpriv.privacy.ledger import Ledger
    from fedpriv.privacy.rounding import rounded_up

    with (
        Ledger.open(path, read_only=True)
        if terms is None
        else terms.open_ledger(path, read_only=True)
    ) as ledger:
        ledger.verify()
        spent, protected = ledger.spent(), ledger.settings.unit.words
    if not spent.within_budget:
        raise Fault(f"{path.name} is over budget", "no further run is possible on these records.")
    used = rounded_up(spent.guarantee.epsilon)
    return f"{path.name}: epsilon {used} of {spent.budget.epsilon:g} spent, for {protected}"


def _port(folder: Folder, host: str, port: int) -> str:
    if any(process.alive for process in processes(folder)):
        return f"{port}, used by this member"
    if not reach.is_free(host, port):
        raise Fault(f"port {port} is taken by another process", "choose another port, or end it.")
    return f"{port} is free"


def _reached(folder: PartyFolder) -> str:
    certificate = reach.served_certificate(folder)
    return f"{read_node(folder).server}, valid until {certificate.not_valid_after_utc:%Y-%m-%d}"


def _clock(folder: PartyFolder) -> str:
    skew = reach.clock_skew(folder)
    if not -reach.MOST_BEHIND < skew < reach.MOST_AHEAD:
        raise Fault(
            f"{skew:+.0f} s against the server, which allows {-reach.MOST_BEHIND:+.0f} s to "
            f"{reach.MOST_AHEAD:+.0f} s",
            "synchronise the clocks of both machines (NTP).",
        )
    return f"{skew:+.1f} s against the server"
