"""The federation file: what `fedpriv deploy init` founds.

version = 1
name = "clinics"
schema = "clinics.toml"        # copied to everybody; may come later

[server]
address = "fed.example.org"    # what parties connect to
port = 9443

[[party]]
name = "north"

[budget]                       # of the server's ledger, for all runs; the parties decide on theirs
epsilon = 2.0

[policy]
min_parties = 3
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from fedpriv._toml import read_toml
from fedpriv.simulations.deploy.certificates import LOCAL_NAMES, SERVER_DAYS
from fedpriv.simulations.deploy.members.roster import require_name
from fedpriv.simulations.experiment.complaints import complaint
from fedpriv.simulations.experiment.sections import Count, Section, Sequence

if TYPE_CHECKING:
    from pathlib import Path

Port = Annotated[int, Field(ge=1, le=65535)]
NODE_PORT = 9094


class ServerSection(Section):
    """Where the server is.

    Attributes:
        address: the name or IP address that parties connect to.
        port: its one port.
        host: the address that it listens on; if not given, all, or the loopback for a local one.
        names: further names and IP addresses for its certificate.
        days: how long its certificate is valid.
    """

    address: Annotated[str, Field(min_length=1)]
    port: Port = 9443
    host: str | None = None
    names: Annotated[tuple[str, ...], Sequence] = ()
    days: Count = SERVER_DAYS

    @property
    def listens_on(self) -> str:
        """The address to bind."""
        return self.host or ("127.0.0.1" if self.address in LOCAL_NAMES else "0.0.0.0")  # noqa: S104

    @property
    def url(self) -> str:
        """Host and port, as a SuperNode takes them."""
        return f"{self.address}:{self.port}"


class PartySection(Section):
    """A party that is expected at the founding; who belongs, and who comes later, the roster says.

    Attributes:
        name: its name.
        port: the port of its node on its own machine, which nobody else sees; if not given, one
            that differs from those of the others.
        records: how many records it holds, which is public; it may say so later.
    """

    name: str
    port: Port | None = None
    records: Count | None = None

    @model_validator(mode="after")
    def _named(self) -> Self:
        require_name(self.name)
        return self


class FederationFile(Section):
    """One federation.

    Attributes:
        version: of this format.
        name: what it is called.
        schema_path: the schema of the records (key ``schema``), relative to the file.
        server: where the server is.
        party: who is expected at the founding.
        budget: what the server's ledger takes for all runs together, and the proposal for
            ``[budget]`` of every party's file.
        policy: proposal for ``[policy]``.
    """

    version: Literal[1] = 1
    name: str
    schema_path: str | None = Field(default=None, alias="schema")
    server: ServerSection
    party: Annotated[tuple[PartySection, ...], Sequence]
    budget: dict[str, Any] = Field(default_factory=dict)
    policy: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        require_name(self.name)
        names = [party.name for party in self.party]
        if not names:
            raise ValueError("needs at least one [[party]].")
        if len(set(names)) != len(names):
            raise ValueError("two [[party]] tables have the same name.")
        return self

    def node_port(self, name: str) -> int:
        """The local port of a party's node: as stated, else one that no listed party has.

        A party need not be listed: who belongs is what the roster says.
        """
        for position, party in enumerate(self.party):
            if party.name == name:
                return party.port or NODE_PORT + position
        return NODE_PORT + len(self.party)

    def to_dict(self) -> dict[str, Any]:
        """The file with nothing left out but what is not set."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def read_federation(path: Path) -> FederationFile:
    """Read a federation file; the first thing that is wrong is the message."""
    values = read_toml(path, "federation")
    schema = values.get("schema")
    if isinstance(schema, str):
        values["schema"] = str((path.parent / schema).resolve())
    return parse_federation(values)


def parse_federation(values: dict[str, Any]) -> FederationFile:
    """Check the values of a federation file."""
    try:
        return FederationFile.model_validate(values)
    except ValidationError as error:
        raise ValueError(complaint(error, FederationFile)) from None
