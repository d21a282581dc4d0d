"""Attesting a statement: a party signs it only if its own ledger says the same of its records.

A party believes nothing here that it can check. It signs a document if

- its server signed it, and it is of the party's own roster, number and name, and of its peers;
- it names the experiment that the party is shown, whose hash, protection included, is in the run's
  name, and states that protection: the one that the party answered under;
- ε and its other forms, the threshold and n_min follow from the rest of it
  (`statement_document.recomputed`);
- who it says added the noise is who did: nobody but this party knows that its answers were exact,
  and that the server was trusted with their sums (what follows from it, who saw what, `recomputed`
  looks at);
- what it says of the people behind the records, on whom a person's ε rests, is what the experiment
  says (`People`), and the public number of records is the roster's;
- how many parties it says must be in a sum that has enough noise, and how many of them may collude,
  is what its experiment says: the events have the difference of the two alone;
- the noise of a perturbed objective, whose cost follows from no number in the document, is what
  the experiment and the roster imply (``noise``);
- what it says in words of the run, its data, outcome, tuning and assumptions, and whether the
  server saw exact sums on the way, is what the experiment says (``told``);
- its ledger has paid for at least one release of this run, under the same adjacency and for the
  same unit, and for none that is not stated: for every event at most as often as the document says.
  What the run cost its records is then at most the stated ε. *Proof.* The releases that it paid for
  are some of those stated, and (ε, δ) of a part of fixed releases is at most that of all; and a
  filter that admits releases chosen on the way admits a part of them within the same budget. ∎
- the numbers that the proof takes as fixed were fixed before the first release: where the noise was
  planned, all releases, which the party's ledger has paid for as a whole or its journal knows from
  the plan that it was shown first; where it was chosen on the way, the budget, which the experiment
  states. A server that asks until it has seen enough, and then states what it asked for as the
  plan, or as the budget, states an ε that depends on outputs: of that no theorem says anything.

It signs how many releases it paid for: who was missing from some sums says so.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from math import isclose
from typing import TYPE_CHECKING

from fedpriv.federation.deployed.asked import is_evaluation
from fedpriv.federation.deployed.stated_plan import digest_of_releases
from fedpriv.federation.deployed.statements.stated_epsilon import SLACK, Unsound
from fedpriv.federation.deployed.statements.stated_releases import made_of, releases_of
from fedpriv.federation.deployed.statements.statement_document import (
    Member,
    members_of,
    recomputed,
    run_of,
)
from fedpriv.federation.party.guard import QueryRefused
from fedpriv.federation.protocol.level import Protection
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.ledger import Kind
from fedpriv.privacy.ledger.reservations import allowances, declaration_to_dict
from fedpriv.privacy.planning.filters import FILTERS
from fedpriv.privacy.planning.written_plan import stated_noise
from fedpriv.privacy.statement.signed import PartySignature, sign_as_party

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from fedpriv.privacy.ledger.view import LedgerView
    from fedpriv.privacy.planning.shares import Sharing
    from fedpriv.privacy.statement.signed import SignedStatement


@dataclass(frozen=True, slots=True, kw_only=True)
class People:
    """What an experiment declares of the people behind the records, and a roster of their number.

    Attributes:
        records_per_person: The most records of one person, by which ε of a person follows from that
            of a record.
        person_records: Under the person unit, how many of a person's records one party uses.
        person_parties: Under the person unit, at how many parties a person may have records.
        records: The public number of records, or of persons, of all parties.
        smallest_party: That of the smallest of them.
    """

    records_per_person: int
    person_records: int | None
    person_parties: int
    records: int
    smallest_party: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Signatory:
    """A party that is asked to sign.

    Attributes:
        number: Its own.
        name: Its own.
        identity: Its private key.
        roster: The digest of its own roster, in hexadecimal digits.
        members: The parties of that roster, itself among them.
        server: The server's public identity, as its own roster or policy pins it.
        run: What the names of the runs of the experiment begin with that it is shown.
        protection: What that experiment asks for.
        experiment: SHA-256 of its text, in hexadecimal digits.
        budget: (ε, δ) that it states.
        people: What it declares of the people behind the records.
        told: What else it decides of a statement, by part and key.
        sharing: Who brings shares of the noise by that experiment, if the parties add it.
        noise: Works out the noise of its releases, as a written plan has it: asked where that
            perturbs an objective.
    """

    number: int
    name: str
    identity: Ed25519PrivateKey
    roster: str
    members: tuple[Member, ...]
    server: bytes
    run: str
    protection: Protection
    experiment: str
    budget: Budget
    people: People
    told: Mapping[str, Mapping[str, Any]]
    sharing: Sharing | None = None
    noise: Callable[[], Sequence[Mapping[str, Any]]] = tuple


def attest(
    signed: SignedStatement,
    ledger: LedgerView,
    signatory: Signatory,
    *,
    planned: bytes | None = None,
    own_noise: bool = False,
) -> PartySignature:
    """A party's signature on a statement.

    Args:
        signed: The statement, signed by the server.
        ledger: The party's own.
        signatory: As whom it signs.
        planned: What the plan is known by that the run was first answered under
            (`digest_of_releases`); None if there was none.
        own_noise: Whether every answer of the run had noise of this party's in it.

    Raises:
        QueryRefused: It does not sign, and why.
    """
    document = signed.document
    require_by_server(signed, signatory.server)
    require_roster(document, signatory)
    require_experiment(document, signatory)
    require_recomputed(document)
    require_people(document, signatory.people)
    _require_noise(document, signatory)
    if document["statement"]["plan"]["noise_at"] != "server" and not own_noise:
        raise QueryRefused(
            "the statement says that the parties added the noise, and this party does not know "
            "for every answer in the run that it contained the party's noise."
        )
    _require_fixed_before(document, ledger, signatory, planned)
    return sign_as_party(
        document,
        signatory.identity,
        number=signatory.number,
        name=signatory.name,
        head=ledger.head,
        rows=ledger.length,
        releases=require_paid(document, ledger),
    )


def require_roster(document: Mapping[str, Any], signatory: Signatory) -> None:
    """Refuse a statement of another roster, or of other parties, than the party's own."""
    if document.get("roster") != signatory.roster:
        raise QueryRefused("the statement is of another roster than this party's.")
    try:
        members = members_of(document)
    except Unsound as error:
        raise QueryRefused(f"the statement does not hold together: {error}") from None
    own = signatory.identity.public_key().public_bytes_raw()
    if Member(number=signatory.number, name=signatory.name, identity=own) not in members:
        raise QueryRefused("the statement does not name this party as its roster does.")
    if members != signatory.members:
        raise QueryRefused("the statement names other parties than those of the roster.")


def require_experiment(document: Mapping[str, Any], signatory: Signatory) -> None:
    """Refuse another experiment, and masks or words that are not what it says."""
    try:
        name, masks = run_of(document), document["masks"]
        stated = None if masks is None else {key: masks[key] for key in asdict(Protection())}
    except (Unsound, KeyError, TypeError):
        raise QueryRefused("the statement does not say how answers were protected.") from None
    own_run = name == signatory.run or name.startswith(f"{signatory.run}-")
    if is_evaluation(name, of=signatory.run):
        raise QueryRefused("a private evaluation has no statement: it released no model.")
    if not own_run or document.get("experiment") != signatory.experiment:
        raise QueryRefused("the statement is of another experiment than this party is shown.")
    own = signatory.protection
    if stated != (asdict(own) if own.masked else None):
        raise QueryRefused("the statement claims other masks than those of its experiment.")
    _require_shares(document, signatory.sharing)
    _require_told(document, signatory.told)


def require_people(document: Mapping[str, Any], people: People) -> None:
    """Refuse an ε of a person that rests on fewer records, or parties, than were declared."""
    run, plan = document["statement"]["run"], document["statement"]["plan"]
    told = run | {name: plan[name] for name in ("records", "smallest_party")}
    for name, own in asdict(people).items():
        if told.get(name) != own:
            raise QueryRefused(
                f"the statement says {name} = {told.get(name)!r}, and the experiment and the "
                f"roster of this party say {own!r}."
            )


def _require_noise(document: Mapping[str, Any], signatory: Signatory) -> None:
    """Refuse noise of a perturbed objective that is not what the experiment implies."""
    stated = stated_noise(document["statement"]["plan"])
    if stated and not _close(stated, list(signatory.noise())):
        raise QueryRefused("the noise of the statement is not what its experiment implies.")


def _require_shares(document: Mapping[str, Any], own: Sharing | None) -> None:
    """Refuse shares of noise for other sums, or other colluders, than the experiment's."""
    stated, numbers = document.get("noise_shares"), None
    if own is not None:
        numbers = {"minimum": own.minimum, "colluders": own.colluders, "n_min": own.honest}
    if stated != numbers:
        raise QueryRefused(
            f"the statement claims shares of noise for {stated}, and the experiment of this "
            f"party for {numbers}."
        )


def _close(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal, numbers up to rounding."""
    match one, other:
        case dict(), dict():
            return one.keys() == other.keys() and all(_close(one[k], other[k]) for k in one)
        case list(), list():
            return len(one) == len(other) and all(map(_close, one, other))
        case int() | float(), int() | float():
            return isclose(one, other, rel_tol=SLACK)
    return bool(one == other)


def _require_told(document: Mapping[str, Any], told: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse what the experiment says otherwise."""
    for part, values in told.items():
        for name, own in values.items():
            try:
                same = document["statement"][part][name] == own
            except (KeyError, TypeError):
                same = False
            if not same:
                raise QueryRefused(
                    f"{part}.{name} of the statement is not what the experiment says."
                )


def _require_fixed_before(
    document: Mapping[str, Any], ledger: LedgerView, signatory: Signatory, planned: bytes | None
) -> None:
    """Refuse an ε that rests on what the server could have chosen after it had seen releases."""
    guarantee, plan = (document["statement"][part] for part in ("guarantee", "plan"))
    if guarantee["accountant"] in FILTERS:
        if Budget(epsilon=guarantee["epsilon"], delta=guarantee["delta"]) != signatory.budget:
            raise QueryRefused(
                f"the experiment states {signatory.budget}, and its noise is chosen on the way: "
                "the statement must state the same."
            )
    elif ledger.declared(run_of(document)) is None and planned != digest_of_releases(
        releases_of(document)
    ):
        raise QueryRefused(
            "the releases of the statement are not those of a plan that this party was shown "
            "before its first answer: they may have been chosen by what was seen."
        )
    if Budget(**plan["budget"]) != signatory.budget:
        raise QueryRefused(
            f"the plan of the statement has another budget than the experiment, which states "
            f"{signatory.budget}: the same releases have another epsilon at another delta."
        )


def require_recomputed(document: Mapping[str, Any]) -> None:
    """Refuse a statement of which something does not follow from the rest."""
    for finding in recomputed(document):
        if not finding.passed:
            raise QueryRefused(f"the statement is wrong ({finding.check}): {finding.words}")


def require_by_server(signed: SignedStatement, server: bytes) -> None:
    """Refuse a statement that the party's own server did not sign."""
    if signed.document.get("server") != server.hex() or not signed.signed_by_server(server):
        raise QueryRefused("the statement is not signed by this party's server.")


def require_paid(document: Mapping[str, Any], ledger: LedgerView) -> int:
    """How many of the stated releases a ledger paid for; refuses a run that it knows otherwise.

    Raises:
        QueryRefused: It paid for none, for one that is not stated, under another adjacency, or for
            another unit.
    """
    try:
        run, block, made = run_of(document), releases_of(document), made_of(document)
    except Unsound as error:
        raise QueryRefused(f"the statement does not hold together: {error}") from None
    adjacency, unit = ledger.settings.adjacency, ledger.settings.unit
    if any(event.adjacency is not adjacency for event, _ in block):
        raise QueryRefused(
            f"the statement is not under {adjacency.value!r} adjacency, as this party's ledger is."
        )
    if any(event.unit is not unit for event, _ in block):
        raise QueryRefused(
            f"the statement is not for unit {unit.value!r}, as this party's ledger is."
        )
    paid = Counter(
        row.detail for row in ledger.rows() if (row.kind, row.run) == (Kind.RESERVED.value, run)
    )
    if not paid:
        raise QueryRefused("this party's ledger has paid for no release of this run.")
    if paid - allowances(declaration_to_dict(block, None)):
        raise QueryRefused(
            "this party's ledger has paid for releases of this run that are not stated, or for "
            "more of them."
        )
    if paid.total() > made:
        raise QueryRefused(
            f"the statement says that the run ended after {made} releases, and this party's ledger "
            f"has paid for {paid.total()}."
        )
    declared = ledger.declared(run)
    if declared is not None and allowances(declared) - allowances(declaration_to_dict(block, None)):
        raise QueryRefused(
            "this party's ledger has paid for a plan of more releases than are stated, and when a "
            "run stops may depend on what was seen: all that was paid for must be stated."
        )
    return paid.total()
