"""Templates of the files that `init` and `join` write: scripts, units and checklists."""

from __future__ import annotations

import shutil
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from fedpriv._collusion import DEFAULT_COLLUDING
from fedpriv._toml import to_toml
from fedpriv.federation.deployed.policy import MOST_SECONDS
from fedpriv.federation.protocol.level import LEVELS, Protection
from fedpriv.simulations.deploy.federation_budget import budget_table
from fedpriv.simulations.safe_path import installed_program

if TYPE_CHECKING:
    from fedpriv.federation.protocol.level import Level
    from fedpriv.simulations.deploy.federation import FederationFile
    from fedpriv.simulations.deploy.folders import PartyFolder, ServerFolder
    from fedpriv.simulations.deploy.members.roster import Roster

LEVEL: Level = "active"
"""What is proposed to the parties, if the federation file says nothing."""

_POLICY: dict[str, Any] = {
    "strategies": ["gradient-perturbation", "output-perturbation"],
    "queries": ["gradient", "erm"],
    "max_clip": 1.0,
    "min_noise": 0.5,
    "noise_at": "server",
    "secure_aggregation": LEVEL,
    "max_seconds": MOST_SECONDS,
}


_FEWEST = 2  # the sum over one party is its answer


def party_values(
    federation: FederationFile, name: str, *, server: str, identity: str
) -> dict[str, Any]:
    """A party's own file, as proposed.

    Args:
        federation: Whose proposal it is.
        name: Of the party.
        server: The fingerprint of the CA's certificate.
        identity: The fingerprint of the server's identity.
    """
    policy = {**_POLICY, **federation.policy, "server": server, "server_identity": identity}
    names = {name, *(party.name for party in federation.party)}
    policy.setdefault("min_parties", _least(len(names), policy))
    return {
        "version": 1,
        "party": {
            "name": name,
            "data": "records.csv",
            "schema": "schema.toml",
            "ledger": f"{name}.ledger",
            "identity": "identity.key",
            "roster": "roster.toml",
            "state": "state",
        },
        "budget": budget_table(federation),
        "policy": policy,
    }


def _least(parties: int, policy: dict[str, Any]) -> int:
    """The least number of parties in a sum, if as many drop out as a run allows.

    A party that asks for more would refuse every run of the federation.
    """
    level, colluding = policy["secure_aggregation"], policy.get("colluding", DEFAULT_COLLUDING)
    if level not in LEVELS[1:] or parties < _FEWEST:
        return _FEWEST
    return max(_FEWEST, Protection(level=level, corrupt=colluding).parameters(parties).minimum)


def party_text(values: dict[str, Any]) -> str:
    """The text of a party's own file, with a comment on top about who decides."""
    head = (
        "# What this party holds and what it is willing to answer. It decides here, on this\n"
        "# machine, whatever a server asks for. Paths are relative to this file.\n\n"
    )
    return head + to_toml(values)


def start_script(role: str) -> str:
    """A script that starts a member, stays until it ends, and stops it when told to."""
    command = f"env PYTHONSAFEPATH=1 {quote(_fedpriv())} deploy {role}"
    return (
        "#!/bin/sh\n"
        f"# Keeps this {role} running; Ctrl-C or SIGTERM ends it. For the background:\n"
        f"#   fedpriv deploy {role} DIRECTORY        and fedpriv deploy stop DIRECTORY\n"
        f'exec {command} "$(dirname "$(readlink -f "$0")")" --foreground\n'
    )


def unit(role: str, folder: ServerFolder | PartyFolder) -> str:
    """A systemd unit for a member, which may write to its own directory and to nothing else.

    Not asked for: MemoryDenyWriteExecute, because kernels are compiled while they run.
    """
    return f"""\
# Set User to the owner of the directory, who alone may read it. Then, as root:
#   cp {folder.unit.name} /etc/systemd/system/
#   systemctl daemon-reload && systemctl enable --now {folder.unit.stem}
# A second member on this machine: copy it under another name.
# Behind a proxy, at a party: Environment=HTTPS_PROXY=http://proxy.example:3128
[Unit]
Description=fedpriv {role} in {folder.root}
After=network-online.target time-sync.target
Wants=network-online.target

[Service]
User=fedpriv
Environment=NUMBA_CACHE_DIR={folder.root}/cache PYTHONSAFEPATH=1
ExecStartPre={_fedpriv()} doctor {folder.root} --offline
ExecStart={_fedpriv()} deploy {role} {folder.root} --foreground
Restart=on-failure
RestartSec=30
TimeoutStopSec=60
UMask=0077

ReadWritePaths={folder.root}
ProtectSystem=strict
ProtectHome=read-only
PrivateTmp=yes
PrivateDevices=yes
NoNewPrivileges=yes
CapabilityBoundingSet=
RestrictSUIDSGID=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
LockPersonality=yes
ProtectProc=invisible
ProtectClock=yes
ProtectHostname=yes
ProtectControlGroups=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
RemoveIPC=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
"""


def server_checklist(
    federation: FederationFile, *, roster: Roster, authority: str, identity: str
) -> str:
    """The coordinator's checklist."""
    section = federation.server
    return f"""\
# {federation.name}: checklist of the server

1. Keep `ca/ca.key` off this machine; it is needed only to renew the server's certificate.
2. Open port {section.port} of {section.address} to the parties, and nothing else.
3. Tell every party the fingerprints of the CA certificate and of this server's identity, through
   another channel than this server:
   `{authority}`
   `{identity}`
4. For every party that makes its own keys: send `invitation.toml`, receive `bundle.toml`, then
   `fedpriv deploy add bundle.toml --server .`
5. When all are in, send `roster.toml` to every party, and compare its fingerprint by telephone.
   Now, in epoch {roster.epoch}, it is
   `{roster.fingerprint}`
   A party that has missed an epoch needs the files of `rosters/` since then, too.
6. `fedpriv doctor .`, then `./start.sh`, then `fedpriv deploy run EXPERIMENT.toml --server .`
7. After every run: `fedpriv deploy backup . --output FILE`, and FILE to another machine. Of
   `identity.key` and `rosters/`, a copy once in an epoch.
"""


def party_checklist(name: str, *, authority: str, identity: str) -> str:
    """A party's checklist."""
    return f"""\
# {name}: checklist of the party

1. Compare the fingerprints of `ca.crt` and of the server's identity, which `party.toml` pins, with
   what the coordinator tells you through another channel:
   `{authority}`
   `{identity}`
2. Read `party.toml` and change what you do not agree to: budget, clip, noise, protection.
   It decides.
3. Put your records where `party.data` says, and the schema where `party.schema` says.
   `fedpriv deploy bundle .` counts the records (under add-remove adjacency, where their number is
   private, state one that they never exceed with --records); send `bundle.toml`, which is public.
4. When the roster is complete, ask another party, not the server, for its fingerprint: who writes
   the roster decides whom your masks protect you from. Then
   `fedpriv deploy accept roster.toml --fingerprint "..." --party .`
5. `fedpriv doctor .`, then `./start.sh`.
6. After every run: `fedpriv deploy backup . --output FILE`, and FILE to another machine. Never put
   a ledger back by hand: `fedpriv deploy restore FILE .` looks whether it is the newest. An older
   one has forgotten what was spent; with a newer `state/` beside it this party answers nothing.
7. `node.key`, `identity.key` and `worker.secret` never leave this machine.
"""


def _fedpriv() -> str:
    """The command, wherever it is installed."""
    beside = Path(installed_program("fedpriv"))
    return str(beside) if beside.exists() else shutil.which("fedpriv") or "fedpriv"
