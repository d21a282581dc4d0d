"""Host of a deployed party: protocol state on its own disk, and rules of its own.

To what `PartyHost` insists on, a deployment adds:

- A run is joined once, for good: the journal says so. With two places in a run, a party would sign
  two sets of survivors.
- Every message is held against the policy, and comes under the experiment, the protection and the
  roster that the run was joined under: a sum that was masked against an active server is opened
  against one.
- A plan that the server states is checked and priced before the run is joined
  (`fedpriv.federation.deployed.stated_plan`), and every query is held against it.
- No sum of fewer parties than the policy states is opened.
- A release whose noise the parties bring is opened over one set of parties only
  (`fedpriv.federation.party.answered`), in whichever runs of the protocol it is asked for: a server
  that was restarted begins a new one. A sum that failed may be asked for again, and a party then
  gives the same answer with the same share of noise.

  In active mode that holds whatever the server and c colluding parties do. *Proof.* An opening
  takes t signatures with 2t > m + c (`fedpriv.secagg.thresholds`), hence more than half of the
  m - c honest parties of the roster. Two openings have one of them in common, which refuses the
  second. ∎

- A run, and every release of it, belongs to one epoch of the roster. In another one the numbers
  above are of other parties: a server that expelled one had the same numbers opened again, and the
  two sums differed by what a single party had sent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256
from logging import getLogger
from typing import TYPE_CHECKING

from fedpriv.federation.deployed.guard import check_engagement
from fedpriv.federation.deployed.stated_plan import StatedPlan
from fedpriv.federation.exchange_report import one_line
from fedpriv.federation.party.guard import QueryRefused
from fedpriv.federation.party.host import PartyHost
from fedpriv.federation.protocol.errands import ERRANDS
from fedpriv.federation.protocol.wire import Request
from fedpriv.secagg.errors import (
    MalformedMessage,
    SecureAggregationError,
    TooFewParties,
    WrongRound,
)

if TYPE_CHECKING:
    from fedpriv.federation.deployed.engagement import Engagement
    from fedpriv.federation.deployed.errands import Errands
    from fedpriv.federation.deployed.journal import Journal
    from fedpriv.federation.deployed.party import DeployedParty
    from fedpriv.federation.deployed.policy import PartyPolicy
    from fedpriv.federation.party.memory import Memory
    from fedpriv.federation.protocol.wire import Announce, Join, Joined
    from fedpriv.secagg import Party as MaskingParty
    from fedpriv.secagg.round import Bound

_LOG = getLogger("fedpriv.party")
_LONGEST_LINE = 1000  # characters


@dataclass(frozen=True, kw_only=True, eq=False)
class DeployedHost(PartyHost):
    """One party of a deployment, ready to be asked.

    Attributes:
        party: Its budget, and its records behind that.
        store: Its journal.
        engagement: The run that asks.
        policy: What it insists on.
        errands: What it does beside its runs, whatever run asks.
    """

    party: DeployedParty
    store: Journal
    engagement: Engagement
    policy: PartyPolicy
    errands: Errands

    def handled(self, data: bytes, *, run: bytes | None = None) -> bytes:
        """As of every party; an errand takes no place in a run, and comes alone."""
        messages = Request.from_bytes(data).messages
        if len(messages) != 1 or not isinstance(messages[0], ERRANDS):
            return super().handled(data, run=run)
        if run not in (None, messages[0].run):
            raise MalformedMessage("The errand is of another run than it is sent for.")
        try:
            return self._reply((self.errands.done(messages[0]),), "")
        except (SecureAggregationError, QueryRefused) as error:
            return self._reply((), f"{type(error).__name__}: {error}")

    def _place(self, run: bytes) -> Memory:
        """Refuses terms that the party did not agree to when it joined."""
        check_engagement(self.engagement, self.policy)
        joined = (self.engagement.run, self.engagement.roster, self.protection)
        terms = sha256(repr(joined).encode()).digest()
        memory = super()._place(run)
        if memory.terms not in (b"", terms):
            raise WrongRound(
                "The run was joined as another experiment, or under other protection or another "
                "epoch of the roster."
            )
        return replace(memory, terms=terms)

    def _join(self, memory: Memory, message: Join) -> tuple[Memory, Joined]:
        """Looks, before the run is joined, whether all that is planned can be paid for."""
        if memory.run and memory.plan != message.plan:
            raise WrongRound("The run was joined under another plan.")
        if message.plan and not memory.run:
            self.party.engage(StatedPlan.from_bytes(message.plan))
        memory, joined = super()._join(memory, message)
        return replace(memory, plan=message.plan), joined

    def _respondent(self, memory: Memory) -> DeployedParty:
        return self.party.under(StatedPlan.from_bytes(memory.plan)) if memory.plan else self.party

    def _reply(self, results: tuple[Bound, ...], refusal: str) -> bytes:
        if refusal:
            told = one_line(refusal[:_LONGEST_LINE])  # it may quote what the server sent
            _LOG.warning("party %d refused: %s", self.number, told)
        return super()._reply(results, refusal)

    def _masking(self, memory: Memory, announced: Announce) -> MaskingParty:
        masking = super()._masking(memory, announced)
        opened = masking.announced.parameters.minimum
        if opened < self.policy.min_parties:
            raise TooFewParties(
                f"A sum of {opened} parties would be opened, and this party insists on "
                f"{self.policy.min_parties}."
            )
        return masking
