"""Party policy, the party's own file ``party.toml``: which data it has, and what it answers.

The file is read on the party's machine and decides there, whatever a server asks for.

    version = 1

    [party]
    name = "north"
    data = "records.csv"
    schema = "schema.toml"
    ledger = "north.ledger"
    identity = "identity.key"
    roster = "roster.toml"
    state = "state"

    [budget]
    epsilon = 2.0
    delta = 1e-6
    adjacency = "replace-one"
    unit = "record"
    composition = "rdp"

    [policy]
    units = ["record"]
    strategies = ["gradient-perturbation"]
    queries = ["gradient"]
    min_parties = 3
    max_clip = 1.0
    min_noise = 0.5
    noise_at = "server"
    secure_aggregation = "active"
    server = "sha256:…"
    server_identity = "sha256:…"
"""

from __future__ import annotations

import re
from dataclasses import MISSING, dataclass, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from fedpriv._collusion import DEFAULT_COLLUDING
from fedpriv._toml import read_toml
from fedpriv._validate import (
    require_choice,
    require_count,
    require_delta,
    require_non_negative,
    require_positive,
)
from fedpriv.federation.deployed.budget_terms import KEYS, BudgetTerms, parse_budget
from fedpriv.federation.protocol.level import LEVELS
from fedpriv.federation.queries.kinds import QUERIES
from fedpriv.privacy.planning.plan import NOISE_PLACES
from fedpriv.privacy.unit import DEFAULT_UNIT, Unit, sizes_are_public

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.federation.protocol.level import Level
    from fedpriv.privacy.adjacency import Adjacency
    from fedpriv.privacy.budget import Budget
    from fedpriv.privacy.planning.plan import NoisePlace

VERSION = 1
_FINGERPRINT = re.compile(r"sha256:[0-9a-f]{64}")
MOST_SECONDS = 900.0
MOST_LOCAL_STEPS = 10_000
MOST_RELEASES = 100_000
_LEAST_PARTIES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PartyPolicy:
    """What a party insists on. No default weakens it: what may be asked must be written down.

    Attributes:
        strategies: Names of the strategies whose runs it takes part in.
        queries: The kinds of query that it answers.
        min_parties: The least number of parties in a sum that it helps to open.
        max_clip: The largest bound on one record's part in an answer: C of a clipped gradient or
            loss, C·√(1 + κ²/4) of a gradient with a count, C times the largest scale in scaled
            coordinates, and where nothing is clipped the bound G on a record's gradient.
        min_noise: The least noise of a release, relative to the sensitivity: standard deviation /
            sensitivity of a Gaussian, 1/ε where a release states ε.
        noise_at: "parties": it answers only queries to which the parties bring the noise;
            "server": it also trusts the server with exact sums, and to add the noise.
        secure_aggregation: The least protection of an answer on its way to the sum.
        colluding: The fraction of the parties that it believes may collude with the server.
        server: The fingerprint of the only certificate authority whose server it talks to.
        server_identity: The fingerprint of the only key whose instructions it carries out.
        max_local_steps: The most steps of local training that it takes for one answer.
        max_releases: The most releases of one run that it answers for, however many are planned.
        max_seconds: The longest that one message may take here, whatever time the server gives it.
        units: Whose privacy a release may be planned for, so that this party answers.
        person_parties: Under the person unit, at how many parties a person of this one's may have
            records, for all that its owner knows: runs that count on fewer are refused.
        by_party: Whether it answers a description of every party by itself, with noise of its own
            that is enough for what it shows.
        suggest_bounds: Columns of numbers without bounds, by name, of which it answers noisy counts
            by powers of two.
    """

    strategies: tuple[str, ...]
    queries: tuple[str, ...]
    min_parties: int
    max_clip: float
    min_noise: float
    noise_at: NoisePlace
    secure_aggregation: Level
    server: str
    server_identity: str
    colluding: float = DEFAULT_COLLUDING
    max_seconds: float = MOST_SECONDS
    max_local_steps: int = MOST_LOCAL_STEPS
    max_releases: int = MOST_RELEASES
    units: tuple[Unit, ...] = (DEFAULT_UNIT,)
    person_parties: int = 1
    by_party: bool = False
    suggest_bounds: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("strategies", "queries", "units"):
            if not getattr(self, name):
                raise ValueError(f"{name} must name at least one, got none: nothing is allowed.")
        object.__setattr__(self, "units", tuple(map(Unit, self.units)))
        require_choice(QUERIES, **{f"queries[{i}]": kind for i, kind in enumerate(self.queries)})
        require_count(min_parties=self.min_parties, person_parties=self.person_parties)
        if self.min_parties < _LEAST_PARTIES:
            raise ValueError(
                f"min_parties must be at least {_LEAST_PARTIES}, got {self.min_parties}: the sum "
                "over one party is its answer."
            )
        if type(self.by_party) is not bool:
            raise ValueError(f"by_party must be true or false, got {self.by_party!r}.")
        require_positive(max_clip=self.max_clip)
        require_non_negative(min_noise=self.min_noise)
        require_choice(NOISE_PLACES, noise_at=self.noise_at)
        require_choice(LEVELS, secure_aggregation=self.secure_aggregation)
        require_delta(colluding=self.colluding)
        require_positive(max_seconds=self.max_seconds)
        require_count(max_local_steps=self.max_local_steps, max_releases=self.max_releases)
        _require_fingerprint("of the CA certificate", server=self.server)
        _require_fingerprint("of the server's key", server_identity=self.server_identity)
        if self.noise_at == "parties" and self.secure_aggregation == "off":
            raise ValueError(
                "secure_aggregation must not be 'off' with noise_at = 'parties': one share of the "
                "noise does not protect an answer. Set it to 'active'."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartyFile:
    """What a party's file says. Paths are absolute; nothing else was opened yet.

    Attributes:
        name: The party, as the roster calls it.
        data: Its records: a CSV or Parquet file.
        schema: What is publicly known of them.
        ledger: What was spent of its budget.
        identity: Its private Ed25519 key.
        roster: Everybody's public keys and sizes.
        state: The directory of what it must not forget between two messages.
        test: Records that it holds out, to evaluate models on; None if it does not.
        certificate: The CA certificate that its SuperNode is started with.
        budget: (ε, δ) of these records, for all runs that ever use them.
        adjacency: Which data sets the budget compares.
        unit: Whose privacy the budget is for: one of ``policy.units``.
        composition: By which rule its ledger adds up, from the first answer on; no server decides
            it by what it asks first. See `BudgetTerms`.
        policy: What it insists on.
    """

    name: str
    data: Path
    schema: Path
    ledger: Path
    identity: Path
    roster: Path
    state: Path
    test: Path | None
    certificate: Path
    budget: Budget
    adjacency: Adjacency
    unit: Unit
    composition: str
    policy: PartyPolicy

    def __post_init__(self) -> None:
        if self.unit not in self.policy.units:
            raise ValueError(
                f"policy.units must name the unit of the budget, {self.unit.value!r}, got "
                f"{[unit.value for unit in self.policy.units]}: the ledger of this party is made "
                "for that unit, and answers for another are not paid from it."
            )

    @property
    def terms(self) -> BudgetTerms:
        """What its ledger is made with."""
        return BudgetTerms(
            budget=self.budget,
            adjacency=self.adjacency,
            unit=self.unit,
            composition=self.composition,
        )

    @property
    def counts_public(self) -> bool:
        """Whether the number of its records is public: not under add-remove, nor for persons."""
        return sizes_are_public(self.unit, self.adjacency)


_PATHS = ("data", "schema", "ledger", "identity", "roster", "state")
_TABLES: dict[str, tuple[str, ...]] = {
    "party": ("name", *_PATHS, "test", "certificate"),
    "budget": KEYS,
    "policy": tuple(field.name for field in fields(PartyPolicy)),
}
_OPTIONAL = {
    "test",
    "certificate",
    "unit",
    "composition",
    *(field.name for field in fields(PartyPolicy) if field.default is not MISSING),
}


def read_party(path: Path) -> PartyFile:
    """Read a party's file; paths in it are relative to it.

    Raises:
        ValueError: names the key, its value, the rule and the remedy.
    """
    return parse_party(read_toml(path, "party file"), folder=path.parent.resolve())


def parse_party(values: dict[str, Any], *, folder: Path) -> PartyFile:
    """Check the values of a party's file, whose paths are relative to ``folder``."""
    _require_known("", values, ("version", *_TABLES))
    if values.get("version") != VERSION:
        raise ValueError(f"version must be {VERSION}, got {values.get('version')!r}.")
    party, budget, policy = (_table(values, name) for name in _TABLES)
    for key, value in party.items():
        if not isinstance(value, str) or not value:
            raise ValueError(f"party.{key} must be text, got {value!r}.")
    terms = parse_budget(budget)
    policy.setdefault("units", [terms.unit.value])
    policy.setdefault("suggest_bounds", [])
    for key in ("strategies", "queries", "units", "suggest_bounds"):
        if not _is_texts(policy[key]):
            raise ValueError(f"policy.{key} must be a list of names, got {policy[key]!r}.")
        policy[key] = tuple(policy[key])
    return PartyFile(
        name=party["name"],
        **{key: folder / party[key] for key in _PATHS},
        test=folder / party["test"] if "test" in party else None,
        certificate=folder / party.get("certificate", "ca.crt"),
        budget=terms.budget,
        adjacency=terms.adjacency,
        unit=terms.unit,
        composition=terms.composition,
        policy=_made("policy", PartyPolicy, **policy),
    )


def _table(values: dict[str, Any], name: str) -> dict[str, Any]:
    """One table of the file, with all the keys that it must have and no other."""
    table = values.get(name)
    if not isinstance(table, dict):
        raise ValueError(f"[{name}] must be a table with {', '.join(_TABLES[name])}.")
    _require_known(f"{name}.", table, _TABLES[name])
    for key in _TABLES[name]:
        if key not in table and key not in _OPTIONAL:
            raise ValueError(f"{name}.{key} is missing: a party's file leaves nothing open.")
    return dict(table)


def _require_known(prefix: str, table: dict[str, Any], known: tuple[str, ...]) -> None:
    for key in table:
        if key not in known:
            near = get_close_matches(key, known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(
                f"{prefix}{key} is not a known key.{hint} Known here: {', '.join(known)}."
            )


def _made(table: str, kind: Any, **values: Any) -> Any:
    """A value whose own checks name the key within its table."""
    try:
        return kind(**values)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{table}.{error}") from None


def _require_fingerprint(whose: str, **parameters: object) -> None:
    for name, value in parameters.items():
        if not isinstance(value, str) or not _FINGERPRINT.fullmatch(value):
            raise ValueError(
                f"{name} must be 'sha256:' and 64 hexadecimal digits, the fingerprint {whose}, got "
                f"{value!r}."
            )


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
