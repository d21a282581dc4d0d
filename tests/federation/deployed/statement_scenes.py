"""Signed statements to be taken apart: of shares of noise, and of noise at the server."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from math import sqrt
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedpriv.federation.deployed.stated_plan import digest_of_releases
from fedpriv.federation.deployed.statements import attesting
from fedpriv.federation.deployed.statements.attesting import People, Signatory
from fedpriv.federation.deployed.statements.stated_epsilon import Unsound
from fedpriv.federation.deployed.statements.stated_releases import releases_of
from fedpriv.federation.deployed.statements.statement_document import Member, make_document
from fedpriv.federation.deployed.statements.verifying import Pinned
from fedpriv.federation.protocol.level import Protection
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.ledger.storage.chain import canonical_json
from fedpriv.privacy.mechanisms import GaussianMechanism
from fedpriv.privacy.planning.adaptive_plan import AdaptivePlan
from fedpriv.privacy.planning.filters import fresh_filter
from fedpriv.privacy.planning.fixed_plan import FixedPlan
from fedpriv.privacy.planning.gradient import gradient_plan
from fedpriv.privacy.planning.shares import Sharing, shared_noise
from fedpriv.privacy.statement import LedgerFacts, RunFacts, TrustModel, make_statement
from fedpriv.privacy.statement.signed import (
    SignedStatement,
    read_canonical,
    read_signed,
    sign_as_server,
)
from fedpriv.privacy.written_events import event_from_dict

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.privacy.statement import Statement
    from fedpriv.privacy.statement.signed import PartySignature, SignedStatement

NAMES = ("north", "east", "south", "west", "centre")
ROSTER = "ab" * 32
EXPERIMENT = "cd" * 32
ROUNDS = 3
RUN = "gradient-perturbation-0f-1a2b3c4d"
TOLD: dict[str, dict[str, Any]] = {
    "run": {"data": "clinics", "outcome": "", "assumptions": []},
    "plan": {"strategy": "gradient-perturbation"},
    "trust": {"server_also_sees": ""},
}
SHARING = Sharing(parties=len(NAMES), dropout=0.2)
PEOPLE = People(
    records_per_person=2, person_records=None, person_parties=1, records=500, smallest_party=100
)


def gaussian_plan(epsilon: float = 1.0) -> FixedPlan:
    """Noise at the server."""
    plan = gradient_plan(
        budget=Budget(epsilon=epsilon, delta=1e-6),
        rounds=ROUNDS,
        sensitivity=2.0,
        clip_norm=1.0,
        sizes=[100] * len(NAMES),
        dimension=5,
        step=2.0**-16,
        adjacency="replace-one",
    )
    assert isinstance(plan, FixedPlan)
    return plan


def shares_plan(epsilon: float = 1.0) -> FixedPlan:
    """Shares of noise at the parties, one of which may be missing."""
    plan = gaussian_plan(epsilon)
    mechanisms = shared_noise(
        budget=plan.budget,
        sharing=SHARING,
        l1_sensitivity=2.0**17 * sqrt(5) + 5,
        l2_sensitivity=2.0**17 + sqrt(5),
        dimension=5,
        step=plan.step,
        adjacency=plan.adjacency,
        shape=(1.0,) * ROUNDS,
    )
    return replace(plan, mechanisms=mechanisms, noise_at="parties", accountant="auto")


def adaptive_plan(epsilon: float = 0.5) -> AdaptivePlan:
    """Noise at the server, chosen on the way; one release was made."""
    return AdaptivePlan(
        strategy="gradient-perturbation",
        query="a sum",
        released=gaussian_plan().released,
        filter=fresh_filter(
            "gdp-filter",
            budget=Budget(epsilon=epsilon, delta=1e-6),
            adjacency=Adjacency.REPLACE_ONE,
        ),
        parties=len(NAMES),
        records=500,
        smallest_party=100,
        dimension=5,
        step=2.0**-16,
    ).admit(GaussianMechanism(sensitivity=2.0, stddev=40.0, adjacency=Adjacency.REPLACE_ONE))


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A server, five parties and the statement of their run."""

    keys: tuple[Ed25519PrivateKey, ...]
    server: Ed25519PrivateKey
    plan: FixedPlan | AdaptivePlan
    also_seen: str = ""

    @classmethod
    def make(cls, plan: FixedPlan | AdaptivePlan | None = None, *, also_seen: str = "") -> Scene:
        keys = tuple(Ed25519PrivateKey.generate() for _ in NAMES)
        server = Ed25519PrivateKey.generate()
        return cls(keys=keys, server=server, plan=plan or shares_plan(), also_seen=also_seen)

    @property
    def members(self) -> tuple[Member, ...]:
        return tuple(
            Member(number=number, name=name, identity=key.public_key().public_bytes_raw())
            for number, (name, key) in enumerate(zip(NAMES, self.keys, strict=True))
        )

    @property
    def pinned(self) -> Pinned:
        key = self.server.public_key().public_bytes_raw()
        return Pinned(digest=ROSTER, server=key, members=self.members)

    def document(self) -> dict[str, Any]:
        """As it is read from a file, so that a test may change it in place."""
        document = make_document(
            self.statement().to_dict(),
            protection=Protection(level="active"),
            parties=self.members,
            roster=ROSTER,
            server=self.server.public_key().public_bytes_raw(),
            experiment=EXPERIMENT,
            model="ef" * 32,
        )
        return read_canonical(canonical_json(document).encode())

    def statement(self) -> Statement:
        """What the run guarantees."""
        masks = Protection(level="active").parameters(len(NAMES), minimum=4)
        return make_statement(
            self.plan,
            facts=RunFacts(
                run=RUN,
                data="clinics",
                simulated=False,
                randomness="operating system",
                sampler="full batch",
                records_per_person=PEOPLE.records_per_person,
            ),
            trust=TrustModel(
                secure_aggregation="active",
                colluding_parties=masks.colluders,
                dropped_parties=masks.missing,
                least_parties=masks.minimum,
                server_also_sees=self.also_seen,
            ),
            ledger=LedgerFacts(
                budget_epsilon=2.0,
                budget_delta=1e-6,
                spent_before_epsilon=0.5,
                head="5f" * 32,
                rows=9,
            ),
        )

    def signed(self, document: dict[str, Any] | None = None) -> SignedStatement:
        return sign_as_server(self.document() if document is None else document, self.server)

    def signatory(self, number: int = 0) -> Signatory:
        return Signatory(
            number=number,
            name=NAMES[number],
            identity=self.keys[number],
            roster=ROSTER,
            members=self.members,
            server=self.server.public_key().public_bytes_raw(),
            run=RUN,
            protection=Protection(level="active"),
            experiment=EXPERIMENT,
            budget=self.plan.budget,
            people=PEOPLE,
            told=TOLD,
            sharing=SHARING if self.plan.noise_at == "parties" else None,
        )

    def ledger(
        self,
        path: Path,
        *,
        run: str = RUN,
        rounds: int = ROUNDS,
        adjacency: str = "replace-one",
        unit: str = "record",
    ) -> Ledger:
        """A party's ledger that has paid for so many releases."""
        ledger = Ledger.create(
            path,
            data_name="north",
            budget=Budget(epsilon=50.0, delta=1e-6),
            adjacency=adjacency,
            unit=unit,
            composition="rdp",
        )
        for index in range(rounds):
            event = self.plan.event(min(index, ROUNDS - 1))
            event = event_from_dict({**event.to_dict(), "adjacency": adjacency, "unit": unit})
            ledger.reserve(event, run=run, round=index)
        return ledger


SHARES, SERVER_NOISE = Scene.make(), Scene.make(gaussian_plan())


def attest(signed: SignedStatement, ledger: Ledger, signatory: Signatory) -> PartySignature:
    """Of a party that was shown the plan of the statement before its first answer."""
    planned = None
    with suppress(Unsound):
        planned = digest_of_releases(releases_of(signed.document))
    return attesting.attest(signed, ledger, signatory, planned=planned, own_noise=True)


def attested(scene: Scene, folder: Path, *, absent: tuple[str, ...] = ()) -> SignedStatement:
    """The statement with the signatures of all who are there."""
    signed = scene.signed()
    for number, name in enumerate(NAMES):
        if name not in absent:
            with scene.ledger(folder / f"{name}.ledger") as ledger:
                signed = signed.with_party(attest(signed, ledger, scene.signatory(number)))
    return read_signed(signed.to_text().encode())
