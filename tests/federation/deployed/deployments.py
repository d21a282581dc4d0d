"""Deployments on one disk: parties with files of their own, and a grid that opens them afresh."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedpriv._toml import to_toml
from fedpriv.federation.engines.courier import Patience
from fedpriv.federation.engines.local import FIRST_NODE, LocalGrid
from fedpriv.federation.party.client_app import client_app
from fedpriv.privacy.ledger import Ledger
from fedpriv.simulations.deploy.certificates import fingerprint, new_authority, read_certificate
from fedpriv.simulations.deploy.keys import (
    identity_private,
    identity_public,
    new_node_key,
    node_public,
    private_folder,
    write_private,
)
from fedpriv.simulations.deploy.members.epochs import pin
from fedpriv.simulations.deploy.members.roster import (
    Member,
    Roster,
    identity_fingerprint,
    write_roster,
)
from fedpriv.simulations.deploy.run import client
from fedpriv.simulations.deploy.run.client import open_signed
from fedpriv.simulations.deploy.run.server import open_session, seal_of, serve
from fedpriv.simulations.run.files import read_costs, write_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pytest
    from flwr.app import Context

    from fedpriv.federation.deployed.host import DeployedHost
    from fedpriv.federation.deployed.signed import SignedHost
    from fedpriv.federation.engines.seals import ServerSeal

NAMES = ("north", "east", "south")
SIZES = (40, 25, 60)
FIVE = (*NAMES, "west", "centre")
HELD = (*SIZES, 30, 35)
FOUR: dict[str, Any] = {"names": FIVE[:4], "sizes": HELD[:4]}  # the fewest that may miss one
HOUR = 3600.0
FLOWER = 1  # the number of every run in this process
PATIENCE = Patience(arrival=0.2, reply=0.2, poll=0.01)

SCHEMA = """
label = "sick"
positive = "yes"
[columns.sick]
kind = "category"
values = ["no", "yes"]
[columns.age]
kind = "number"
min = 0
max = 100
[columns.dose]
kind = "number"
min = -1
max = 1
"""

POLICY: dict[str, Any] = {
    "strategies": ["gradient-perturbation", "output-perturbation"],
    "queries": ["gradient", "erm", "risk-gradient"],
    "min_parties": 2,
    "max_clip": 1.0,
    "min_noise": 0.5,
    "noise_at": "server",
    "secure_aggregation": "active",
}

BUDGET: dict[str, Any] = {
    "epsilon": 2.0,
    "delta": 1e-6,
    "adjacency": "replace-one",
    "composition": "auto",  # whatever a test asks first; see test_party_rule.py
}

EXPERIMENT: dict[str, Any] = {
    "name": "study",
    "data": {"schema": "schema.toml"},
    "strategy": {"name": "gradient-perturbation", "rounds": 4, "clip": 1.0},
    "privacy": {"epsilon": 2.0, "delta": 1e-6},
    "run": {"engine": "deployment"},
}


@dataclass(kw_only=True)
class Deployment:
    """A server's directory and one for every party, as `fedpriv deploy init` lays them out."""

    folder: Path
    policy: Mapping[str, Any] = field(default_factory=dict)
    budget: Mapping[str, Any] = field(default_factory=dict)
    experiment: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    sizes: tuple[int, ...] = SIZES
    names: tuple[str, ...] = NAMES

    def __post_init__(self) -> None:
        authority = new_authority("study")
        keys = {name: Ed25519PrivateKey.generate() for name in self.names}
        signing = Ed25519PrivateKey.generate()
        self.roster = Roster(
            server=identity_public(signing),
            members=tuple(
                Member(
                    name=name,
                    identity=identity_public(key),
                    node=node_public(new_node_key()),
                    records=size,
                )
                for (name, key), size in zip(keys.items(), self.sizes, strict=True)
            ),
        )
        self.server = private_folder(self.folder / "server")
        write_private(self.server / "identity.key", identity_private(signing))
        write_roster(self.server / "roster.toml", self.roster)
        (self.server / "schema.toml").write_text(SCHEMA)
        (self.server / "nodes").mkdir()
        for number, member in enumerate(self.roster.members):
            note = {"node": str(FIRST_NODE + number), "key": member.node}
            write_json(self.server / "nodes" / f"{member.name}.json", note)
        self.write_federation()
        for number, (name, key) in enumerate(keys.items()):
            home = private_folder(self.folder / "parties" / name)
            write_private(home / "identity.key", identity_private(key))
            write_roster(home / "roster.toml", self.roster)
            self.accept(name)
            (home / "ca.crt").write_bytes(authority.certificate)
            (home / "schema.toml").write_text(SCHEMA)
            (home / "records.csv").write_text(_records(HELD[number], seed=number))
            self.write_party(name)

    def write_federation(self, **budget: Any) -> None:
        """The server's federation file, of the same budget as the parties' files."""
        values = {
            "name": "study",
            "server": {"address": "127.0.0.1"},
            "budget": {**BUDGET, **self.budget, **budget},
        }
        parties = "".join(f'[[party]]\nname = "{name}"\n' for name in self.names)
        (self.server / "federation.toml").write_text(f"{to_toml(values)}\n{parties}")

    def write_party(
        self, name: str, *, policy: Mapping[str, Any] | None = None, **budget: Any
    ) -> Path:
        """The party's own file, again."""
        home = self.home(name)
        values = {
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
            "budget": {**BUDGET, **self.budget, **budget},
            "policy": {
                **POLICY,
                "server": fingerprint(read_certificate(home / "ca.crt")),
                "server_identity": identity_fingerprint(self.roster.server),
                **self.policy,
                **(policy or {}),
            },
        }
        path = home / "party.toml"
        path.write_text(to_toml(values))
        return path

    def accept(self, name: str) -> None:
        """Have a party accept the roster, if need be into a new state directory."""
        pin(private_folder(self.home(name) / "state"), self.roster)

    def home(self, name: str) -> Path:
        """A party's directory."""
        return self.folder / "parties" / name

    def config(self, **sections: Mapping[str, Any]) -> str:
        """The text of the experiment, with some keys changed."""
        values = dict(EXPERIMENT)
        values["data"] = {"schema": str(self.server / "schema.toml")}
        for changes in (self.experiment, sections):
            for table, keys in changes.items():
                values[table] = {**values.get(table, {}), **keys}
        return to_toml(values)

    def host(self, name: str, config: str | None = None) -> DeployedHost:
        """The party, as a fresh process would open it for what its server has signed."""
        number = self.names.index(name)
        return self.opened(name, config, node=FIRST_NODE + number).open_party()

    def opened(
        self, name: str, config: str | None = None, *, node: int, flower: int = FLOWER
    ) -> SignedHost:
        """The party, as a fresh process would open it."""
        text = self.config() if config is None else config
        return open_signed(str(self.home(name) / "party.toml"), text, flower=flower, node=node)

    def signed_host(self, context: Context, config: str | None = None) -> SignedHost:
        """The party of a node of `grid`."""
        name = self.names[int(context.node_config["partition-id"])]
        return self.opened(name, config, node=context.node_id, flower=context.run_id)

    def grid(self, config: str | None = None) -> LocalGrid:
        """Nodes that remember nothing by themselves."""
        text = self.config() if config is None else config
        return LocalGrid(client_app(partial(self.signed_host, config=text)), len(self.names))

    def seal(self, config: str | None = None, *, server: Path | None = None) -> ServerSeal:
        """What the server signs with, to the nodes of `grid`; on a busy machine nobody is late."""
        text = self.config() if config is None else config
        place = {"config": text, "roster": str((server or self.server) / "roster.toml")}
        seal = seal_of(place, self.roster, flower=FLOWER)
        return replace(seal, clock=lambda: time.time() + HOUR)

    def run(
        self,
        output: Path,
        *,
        grid: LocalGrid | None = None,
        config: str | None = None,
        server: Path | None = None,
    ) -> dict[str, Any]:
        """The ServerApp's part, from its run config to the result."""
        text = self.config() if config is None else config
        roster_file = (server or self.server) / "roster.toml"
        session, roster = open_session(
            {"config": text, "roster": str(roster_file), "output": str(output)}
        )
        result = serve(
            session,
            roster,
            grid or self.grid(text),
            seal=self.seal(text, server=server),
            patience=PATIENCE,
        )
        assert result is not None
        return {**result, **read_costs(output)}

    def ledger(self, name: str) -> Ledger:
        """The party's ledger."""
        return Ledger.open(self.home(name) / f"{name}.ledger", read_only=True)

    def reserved(self, name: str) -> list[tuple[str, int]]:
        """Every release that the party paid for."""
        with self.ledger(name) as ledger:
            ledger.verify()
            return [
                (str(row.run), int(row.round or 0))
                for row in ledger.rows()
                if row.kind == "reserved"
            ]


def take_any_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have parties answer all kinds of query in one run, which tests put by hand."""
    monkeypatch.setattr(client, "forms_of", lambda *_, **__: None)


def _records(count: int, *, seed: int) -> str:
    rng = np.random.default_rng(seed)
    age, dose = rng.uniform(0, 100, count), rng.uniform(-1, 1, count)
    sick = np.where(age / 50 - 1 + dose + rng.normal(0, 0.5, count) > 0, "yes", "no")
    rows = [f"{a:.3f},{d:.4f},{s}" for a, d, s in zip(age, dose, sick, strict=True)]
    return "\n".join(["age,dose,sick", *rows, ""])
