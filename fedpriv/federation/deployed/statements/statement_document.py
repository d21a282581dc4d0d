"""Document of a signed statement: what is signed, and recomputing ε, the threshold t and n_min.

The document repeats the statement word for word and adds what it rests on: the roster and its keys,
the digests of experiment and model, and the numbers of the masks. Whoever has it recomputes, from
the events, what the releases cost, and from the mode, the parties and the colluders, the threshold
(`fedpriv.secagg.thresholds`). Nothing here needs a network, a ledger or a key.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fedpriv._collusion import tolerance
from fedpriv.federation.deployed.statements.stated_epsilon import SLACK, Unsound, recomputed_epsilon
from fedpriv.federation.deployed.statements.stated_parts import require_known_parts
from fedpriv.federation.deployed.statements.stated_releases import made_of, releases_of, whole
from fedpriv.federation.deployed.statements.stated_trust import checked_trust, require_unmasked
from fedpriv.federation.deployed.statements.stated_words import (
    require_accounted_by,
    require_known_words,
)
from fedpriv.federation.protocol.level import Protection
from fedpriv.privacy.accountants import UnsupportedEvent
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import within
from fedpriv.privacy.conversions import group_privacy
from fedpriv.privacy.mechanisms.shares import NoiseShare
from fedpriv.privacy.planning.statistics.statistics import RELEASED_BY_PARTY
from fedpriv.privacy.planning.written_plan import events_of
from fedpriv.privacy.planning.written_plan import releases_of as written_releases
from fedpriv.privacy.statement.guarantee_forms import understated
from fedpriv.privacy.unit import Unit, person_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


_DIGITS = 64  # of a SHA-256
_FAULTS = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, UnsupportedEvent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A party of the run.

    Attributes:
        number: In the roster.
        name: In the roster.
        identity: Its public Ed25519 key.
    """

    number: int
    name: str
    identity: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at, in plain words.

    Attributes:
        check: A short name.
        passed: Whether it is as it must be; None if it was not checked.
        words: What was found.
    """

    check: str
    passed: bool | None
    words: str


def make_document(
    statement: Mapping[str, Any],
    *,
    protection: Protection,
    parties: Sequence[Member],
    roster: str,
    server: bytes,
    experiment: str,
    model: str,
) -> dict[str, Any]:
    """The document of a real run.

    Args:
        statement: As statement.json has it.
        protection: Of the run.
        parties: Who the run was for.
        roster: The digest of the roster, in hexadecimal digits.
        server: The server's public identity.
        experiment: SHA-256 of config.toml, in hexadecimal digits.
        model: SHA-256 of model.npz, likewise; of statistics.json where a table was described.
    """
    share = _share(statement)
    return {
        "roster": roster,
        "server": server.hex(),
        "parties": [
            {"number": each.number, "name": each.name, "identity": each.identity.hex()}
            for each in parties
        ],
        "experiment": experiment,
        "model": model,
        "masks": _masks(protection, len(parties), share),
        "noise_shares": _told(share),
        "statement": dict(statement),
    }


def members_of(document: Mapping[str, Any]) -> tuple[Member, ...]:
    """Who a document says that the run was for; `Unsound` if it does not say so clearly."""
    try:
        members = tuple(
            Member(
                number=whole(each["number"]),
                name=str(each["name"]),
                identity=bytes.fromhex(each["identity"]),
            )
            for each in document["parties"]
        )
    except (KeyError, TypeError, ValueError):
        raise Unsound("it must name its parties, each with a number and a key.") from None
    numbers = [each.number for each in members]
    if numbers != sorted(set(numbers)) or len({each.name for each in members}) != len(members):
        raise Unsound("it names a party twice.")
    return members


def run_of(document: Mapping[str, Any]) -> str:
    """The name of the run."""
    try:
        return str(document["statement"]["run"]["run"])
    except (KeyError, TypeError):
        raise Unsound("it does not name its run.") from None


def recomputed(document: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Everything in a document that follows from the rest of it, computed again."""
    checks: dict[str, Callable[[Mapping[str, Any]], str]] = {
        "statement": _check_statement,
        "releases": check_releases,
        "epsilon": check_epsilon,
        "other forms": check_forms,
        "threshold": _check_threshold,
        "n_min": _check_shares,
        "trust": lambda stated: checked_trust(stated["statement"], _share(stated["statement"])),
        "budget": _check_budget,
    }
    return tuple(finding_of(name, check, document) for name, check in checks.items())


def finding_of(
    name: str, check: Callable[[Mapping[str, Any]], str], document: Mapping[str, Any]
) -> Finding:
    """What a check finds, whatever it stumbles over."""
    try:
        return Finding(check=name, passed=True, words=check(document))
    except Unsound as error:
        return Finding(check=name, passed=False, words=str(error))
    except _FAULTS as why:
        words = f"a part of it is missing or impossible ({type(why).__name__})."
        return Finding(check=name, passed=False, words=words)


def _check_statement(document: Mapping[str, Any]) -> str:
    statement = document["statement"]
    require_known_parts(document)
    require_known_words(statement)
    if statement["status"] != "real" or statement["run"]["simulated"] is not False:
        raise Unsound("it is the statement of a simulation, which guarantees nothing.")
    if statement["run"]["randomness"] != "operating system":
        raise Unsound("its noise was not drawn from the operating system.")
    members = members_of(document)
    if len(members) != statement["plan"]["parties"]:
        raise Unsound(
            f"its plan is for {statement['plan']['parties']} parties, and it names {len(members)}."
        )
    for name in ("roster", "server", "experiment", "model"):
        if len(bytes.fromhex(document[name])) * 2 != _DIGITS:
            raise Unsound(f"{name} must be {_DIGITS} hexadecimal digits.")
    return f"run {run_of(document)}, a real one, of {len(members)} parties."


def check_releases(document: Mapping[str, Any]) -> str:
    """Whether the releases are what the noise of the plan costs; `Unsound` if not."""
    statement, block = document["statement"], releases_of(document)
    made = sum(count for _, count in block)
    made_of(document)  # it must say so in a number
    planned = sum(whole(count) for _, count in written_releases(statement["plan"]))
    if made != planned:
        raise Unsound(f"it states {made} releases, and its plan has {planned}.")
    if events_of(statement["plan"]) != Counter(dict(block)):
        raise Unsound("its releases are not what the noise of its plan costs.")
    adjacency, unit = block[0][0].adjacency, block[0][0].unit
    for term, words in (("adjacency", "adjacencies"), ("unit", "units of privacy")):
        said = {statement["guarantee"][term], statement["plan"][term]}
        if len(said | {getattr(event, term).value for event, _ in block}) > 1:
            raise Unsound(f"its parts speak of different {words}.")
    return (
        f"{made} release{'s'[: made != 1]}, all for {unit.words} under {adjacency.value} adjacency."
    )


def check_epsilon(document: Mapping[str, Any]) -> str:
    """Whether ε, also that of a person, follows from the releases; `Unsound` if not."""
    statement = document["statement"]
    guarantee, plan = statement["guarantee"], statement["plan"]
    stated, delta = float(guarantee["epsilon"]), float(guarantee["delta"])
    if (stated, delta) != (float(plan["epsilon"]), float(plan["budget"]["delta"])):
        raise Unsound("guarantee and plan state different numbers.")
    if not within(stated, float(plan["budget"]["epsilon"])):
        raise Unsound("it states more than the budget of its plan.")
    if guarantee["records_per_person"] != statement["run"]["records_per_person"]:
        raise Unsound("guarantee and run state different numbers of records of a person.")
    found, method = recomputed_epsilon(statement, releases_of(document))
    require_accounted_by(method, guarantee["accountant_version"])
    size = person_steps(
        Unit(guarantee["unit"]),
        Adjacency(guarantee["adjacency"]),
        records=whole(guarantee["records_per_person"]),
        parties=whole(plan["parties"]),
    )
    person = group_privacy(epsilon=stated, delta=delta, size=size)
    told = guarantee["per_person"]
    if not (_close(told["epsilon"], person.epsilon) and _close(told["delta"], person.delta)):
        raise Unsound(f"what it states for a person does not follow: that is {person}.")
    return f"epsilon = {found!r} at delta = {delta!r}, by {method}, as stated."


def check_forms(document: Mapping[str, Any]) -> str:
    """Whether μ, ρ and an attacker's advantage follow from the releases; `Unsound` if not."""
    if why := understated(document["statement"], releases_of(document), slack=SLACK):
        raise Unsound(why)
    return "mu, rho and an attacker's advantage, where they are stated, follow from the releases."


def _check_threshold(document: Mapping[str, Any]) -> str:
    statement, masks = document["statement"], document["masks"]
    trust, parties = statement["trust"], len(members_of(document))
    if masks is None:
        require_unmasked(trust)
        return "no masks: the server saw every party's answer."
    protection = Protection(**{name: masks[name] for name in asdict(Protection())})
    share = _share(statement)
    apart = statement["plan"]["released"] == RELEASED_BY_PARTY
    again = _masks(protection, parties, share)
    for name, value in (again or {}).items():
        if masks.get(name) != value:
            raise Unsound(f"{name} of the masks is stated as {masks.get(name)!r}, and is {value}.")
    told = {
        "secure_aggregation": masks["level"],
        "colluding_parties": masks["colluders"],
        "dropped_parties": masks["missing"],
        "least_parties": masks["minimum"],
        "tolerates": tolerance(
            parties=parties,
            mode=masks["level"],
            colluders=masks["colluders"],
            minimum=masks["minimum"],
            shares=None if share is None else share.honest,
            apart=apart,
        ),
    }
    for name, value in told.items():
        if trust[name] != value:
            raise Unsound(f"trust.{name} is stated as {trust[name]!r}, and is {value!r}.")
    opened = "every party's part by itself" if apart else f"no sum of fewer than {masks['minimum']}"
    return (
        f"t = {masks['threshold']} of {parties}, {masks['level']}, with {masks['colluders']} "
        f"colluding; {opened}."
    )


def _check_shares(document: Mapping[str, Any]) -> str:
    statement, told = document["statement"], document["noise_shares"]
    share = _share(statement)
    if told != _told(share):
        raise Unsound(f"its shares of noise are stated as {told}, and are {_told(share)}.")
    if share is None:
        return f"the noise is added by the {statement['plan']['noise_at']}, not in shares."
    masks = document["masks"] or {"minimum": 1, "colluders": 0}
    if share.minimum > masks["minimum"] or share.colluders < masks["colluders"]:
        raise Unsound("masks open smaller sums, or allow more colluders, than the noise is for.")
    if any(_told(NoiseShare(**m["share"])) != told for m, _ in written_releases(statement["plan"])):
        raise Unsound("its releases count on different numbers of honest shares.")
    return f"n_min = {share.honest} honest shares in every sum."


def _check_budget(document: Mapping[str, Any]) -> str:
    ledger = document["statement"]["ledger"]
    if ledger is None:
        raise Unsound("the server kept no ledger.")
    if len(bytes.fromhex(ledger["head"])) * 2 != _DIGITS or whole(ledger["rows"]) < 1:
        raise Unsound("the head of the server's ledger must be a hash of a row.")
    if not within(float(ledger["spent_before_epsilon"]), float(ledger["budget_epsilon"])):
        raise Unsound("the server's ledger had spent more than its budget.")
    return f"the server's ledger had {ledger['rows']} rows, head {ledger['head']}."


def _masks(protection: Protection, parties: int, share: NoiseShare | None) -> dict[str, Any] | None:
    """The protection of the run, and the numbers that follow from it; None without masks."""
    if not protection.masked:
        return None
    minimum = 0 if share is None else share.minimum
    found = protection.parameters(parties, minimum=minimum)
    return {
        **asdict(protection),
        "roster": found.roster,
        "colluders": found.colluders,
        "missing": found.missing,
        "minimum": found.minimum,
        "holders": found.holders,
        "threshold": found.threshold,
    }


def _share(statement: Mapping[str, Any]) -> NoiseShare | None:
    """What a party adds, if the noise is brought in shares: minimum and colluders are all alike."""
    with suppress(KeyError, TypeError):
        for each, _ in written_releases(statement["plan"]):
            if "share" in each:
                return NoiseShare(**each["share"])
    return None


def _told(share: NoiseShare | None) -> dict[str, int] | None:
    """What a document says of shares of noise."""
    if share is None:
        return None
    return {"minimum": share.minimum, "colluders": share.colluders, "n_min": share.honest}


def _close(told: Any, found: float) -> bool:
    return abs(float(told) - found) <= SLACK * abs(found)
