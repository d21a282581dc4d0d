"""Errands at a deployed party: it attests a statement, takes a model over, leaves a cancelled run.

They need no seat in a run and no record. What a party relies on is its own: its ledger says what it
paid for, its roster whose statement it is. An errand that is repeated has the same end.

**Attested is over.** A signature says what a run has cost. It was true when it was given and must
stay so: that a run was attested is durable before the signature leaves, and no query of that run is
answered from then on. A server that had the statement signed early could go on, at the expense of
the budget, and the statement would tell of less than the run had cost.

Nor is a run attested that was left when a backup was put back: what was answered after the backup
is in no ledger, and the signature would tell of fewer releases than there were.

**One statement.** Nothing tells a party that the model whose digest is in a statement is the one
that was computed. But it signs one statement of a run, and takes over the model of that one and no
other, whichever comes first: a server that shows two models has two signed statements of one run
for nobody.

**One experiment.** The name of a run has a hash of what decides its numbers, and not of all that a
statement repeats of its experiment: where hyper-parameters came from, which test records are called
public. So a statement is signed under the experiment that the run was first answered under.

**Cancelled is for good.** The mark that a run was cancelled is durable before its seats are closed
and its answer is erased, so that whatever fails in between, no query of that run is answered any
more. What the run has spent stays spent: its releases may have been seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpriv.federation.deployed.models import keep_model, kept_model
from fedpriv.federation.deployed.statements.attesting import (
    attest,
    require_by_server,
    require_experiment,
    require_paid,
    require_people,
    require_recomputed,
    require_roster,
)
from fedpriv.federation.deployed.statements.stated_epsilon import Unsound
from fedpriv.federation.deployed.statements.statement_document import run_of
from fedpriv.federation.party.guard import QueryRefused
from fedpriv.federation.protocol.errands import (
    Attest,
    Attested,
    Cancel,
    Cancelled,
    HandedOver,
    HandOver,
)
from fedpriv.privacy.statement.signed import NotCanonical, read_signed
from fedpriv.secagg.errors import OutOfOrder
from fedpriv.secagg.round import RUN_BYTES

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.federation.deployed.journal import Journal
    from fedpriv.federation.deployed.party import DeployedParty
    from fedpriv.federation.deployed.statements.attesting import Signatory
    from fedpriv.privacy.statement.signed import SignedStatement
    from fedpriv.secagg.round import Bound

Errand = Attest | HandOver | Cancel


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Errands:
    """What a party does beside its runs. The journal must be held.

    Attributes:
        party: Its budget and its ledger.
        journal: What it must not forget.
        models: The folder of models that it was handed.
        signatory: As whom it signs.
        shown: What the experiment is known by that it is shown with the errand.
    """

    party: DeployedParty
    journal: Journal
    models: Path
    signatory: Signatory
    shown: bytes

    def done(self, errand: Bound) -> Bound:
        """The result of an errand.

        Raises:
            QueryRefused: It is not carried out, and why.
            OutOfOrder: It is none.
        """
        match errand:
            case Attest():
                return self._attest(errand)
            case HandOver():
                return self._take_over(errand)
            case Cancel():
                return self._cancel(errand)
        raise OutOfOrder(f"{type(errand).__name__} is not for a party.")

    def _attest(self, errand: Attest) -> Attested:
        signed = self._read(errand.statement)
        run = run_of(signed.document)
        with self.party.account() as ledger:
            self.party.require_not_left(ledger, run)
            said = attest(
                signed,
                ledger,
                self.signatory,
                planned=self.journal.planned(run),
                own_noise=self.journal.own_noise(run),
            )
            if self.journal.shown(run) != self.shown:
                raise QueryRefused(
                    "this party has not answered the run under the experiment that it is shown now."
                )
            self._require_only(signed)
            self.journal.attest(run, bytes.fromhex(signed.digest))  # before the signature leaves
        return Attested(
            run=errand.run,
            round=errand.round,
            party=self.signatory.number,
            head=bytes.fromhex(said.head),
            rows=said.rows,
            releases=said.releases,
            signature=said.signature,
        )

    def _take_over(self, errand: HandOver) -> HandedOver:
        signed = self._read(errand.statement)
        require_by_server(signed, self.signatory.server)
        # It is kept beside the model, for people to read.
        require_experiment(signed.document, self.signatory)
        require_recomputed(signed.document)
        self._require_own(signed)
        self._require_only(signed)
        with self.party.account() as ledger:
            require_paid(signed.document, ledger)
            digest = keep_model(self.models, run_of(signed.document), signed, errand.model)
        return HandedOver(
            run=errand.run, round=errand.round, party=self.signatory.number, model=digest
        )

    def _require_only(self, signed: SignedStatement) -> None:
        """Refuse another statement of a run than the one that was signed: of another model, say.

        Or, before one was signed, of another model than was taken over: this party believes that.
        """
        run = run_of(signed.document)
        known = self.journal.statement(run)
        if known not in (None, bytes.fromhex(signed.digest)):
            raise QueryRefused("this party has signed another statement of this run.")
        if kept_model(self.models, run) not in (None, signed.document.get("model")):
            raise QueryRefused("this party has another model of this run.")

    def _require_own(self, signed: SignedStatement) -> None:
        """Refuse what is told of another roster than the run's; of this one, of other people."""
        document = signed.document
        given = self.journal.given(run_of(document))
        if given is not None and given.roster.hex() != document.get("roster"):
            raise QueryRefused("the statement is of another roster than the run began under.")
        if given is None or given.roster.hex() == self.signatory.roster:
            require_roster(document, self.signatory)
            require_people(document, self.signatory.people)

    def _cancel(self, errand: Cancel) -> Cancelled:
        seats = errand.seats
        if len(seats) % RUN_BYTES:
            raise QueryRefused(f"the seats of a cancelled run must have {RUN_BYTES} bytes each.")
        self.journal.cancel(
            errand.name.decode(errors="replace"),
            [seats[at : at + RUN_BYTES] for at in range(0, len(seats), RUN_BYTES)],
        )
        return Cancelled(run=errand.run, round=errand.round, party=self.signatory.number)

    def _read(self, text: bytes) -> SignedStatement:
        """A statement of a run that was not cancelled."""
        try:
            signed = read_signed(text)
            name = run_of(signed.document)
        except (NotCanonical, Unsound) as error:
            raise QueryRefused(f"the statement cannot be read: {error}") from None
        if self.journal.cancelled(name):
            raise QueryRefused("the run of the statement was cancelled.")
        return signed
