"""The privacy statement: all that it says, computed once from a plan and the facts of a run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from fedpriv import __version__
from fedpriv._collusion import tolerance
from fedpriv.privacy.budget import within
from fedpriv.privacy.conversions import PrivacyLoss, group_privacy
from fedpriv.privacy.mechanisms.shares import SharedNoise
from fedpriv.privacy.planning.statistics.statistics import RELEASED_BY_PARTY
from fedpriv.privacy.tradeoff import attack_advantage, gaussian_attack_advantage
from fedpriv.privacy.unit import Unit, neighbours_in_words, person_steps, sizes_are_public

if TYPE_CHECKING:
    from fedpriv.privacy.adjacency import Adjacency
    from fedpriv.privacy.mechanisms.shares import NoiseShare
    from fedpriv.privacy.planning.plan import Plan
    from fedpriv.privacy.statement.facts import LedgerFacts, RunFacts, TrustModel

SIMULATED = "SIMULATED: no privacy was spent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """The statement of what a run guarantees. Renderers print it, and compute nothing."""

    plan: Plan
    facts: RunFacts
    trust: TrustModel
    ledger: LedgerFacts | None
    version: str
    accountant_version: str
    epsilon: float
    delta: float
    per_person: PrivacyLoss
    delta_times_units: float
    gdp_mu: float | None
    zcdp_rho: float | None
    advantage: float
    sees: tuple[str, ...]
    unprotected: tuple[str, ...]
    not_covered: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def releases(self) -> int:
        """How many releases were made: as planned, unless the run ended before."""
        made = self.facts.releases_made
        return self.plan.rounds if made is None else made

    def to_dict(self) -> dict[str, Any]:
        """The statement as JSON-ready values; a simulation says so in the first entry."""
        return {
            "status": SIMULATED if self.facts.simulated else "real",
            "fedpriv": self.version,
            "guarantee": {
                "unit": self.plan.unit.value,
                "adjacency": self.plan.adjacency.value,
                "neighbours": neighbours_in_words(self.plan.unit, self.plan.adjacency),
                "epsilon": self.epsilon,
                "delta": self.delta,
                "records": self.plan.records,
                "delta_times_units": self.delta_times_units,
                "records_per_person": self.facts.records_per_person,
                "per_person": self.per_person._asdict(),
                "gdp_mu": self.gdp_mu,
                "zcdp_rho": self.zcdp_rho,
                "attack_advantage": self.advantage,
                "accountant": self.plan.accountant,
                "accountant_version": self.accountant_version,
            },
            "run": self._run(),
            "plan": self.plan.to_dict(),
            **({} if self.facts.simulated else {"releases": self._releases()}),
            "trust": {
                **asdict(self.trust),
                "sees": list(self.sees),
                "tolerates": _tolerance(
                    self.trust,
                    parties=self.plan.parties,
                    share=_share(self.plan),
                    apart=self.plan.released == RELEASED_BY_PARTY,
                ),
            },
            "ledger": None if self.ledger is None else asdict(self.ledger),
            "unprotected": list(self.unprotected),
            "not_covered": list(self.not_covered),
            "warnings": list(self.warnings),
        }

    def _run(self) -> dict[str, Any]:
        """The facts, without coefficients: parties sign this, and none of them can check those."""
        values = asdict(self.facts)
        del values["coefficients"]
        return values

    def _releases(self) -> list[list[Any]]:
        """What ledgers were charged, event by event: by it anybody computes epsilon again."""
        return [[event.to_dict(), count] for event, count in self.plan.releases]


NOT_COVERED = (
    "parties that answer falsely, and denial of service",
    "side channels: timing, memory, crashes",
    "what holds for the whole population, which a model is meant to learn",
)


POINTS_SEEN = (
    "each party also sees the points at which these sums are asked for, which follow from the "
    "exact sums before: the guarantee holds towards those who see the release alone, and the "
    "parties must be trusted with each other's part in the sums"
)
"""Of a joint fit: whoever is asked at a point knows what the sums before it were."""


def make_statement(
    plan: Plan, *, facts: RunFacts, trust: TrustModel, ledger: LedgerFacts | None = None
) -> Statement:
    """Compute the statement of a run that followed ``plan``."""
    mu, epsilon, delta = plan.gdp_mu, plan.epsilon, plan.budget.delta
    return Statement(
        plan=plan,
        facts=facts,
        trust=trust,
        ledger=ledger,
        version=__version__,
        accountant_version=_accountant_version(plan),
        epsilon=epsilon,
        delta=delta,
        per_person=group_privacy(epsilon=epsilon, delta=delta, size=_person_steps(plan, facts)),
        delta_times_units=delta * units_of(plan),
        gdp_mu=mu,
        zcdp_rho=plan.zcdp_rho,
        advantage=(
            attack_advantage(epsilon=epsilon, delta=delta)
            if mu is None
            else gaussian_attack_advantage(mu=mu)
        ),
        sees=who_sees_what(
            trust,
            noise_at=plan.noise_at,
            released=plan.released,
            parties=plan.parties,
            share=_share(plan),
        ),
        unprotected=unprotected(
            plan.unit, plan.adjacency, metrics_published=facts.metrics_published
        ),
        not_covered=NOT_COVERED,
        warnings=warnings_of(
            facts,
            trust,
            epsilon=epsilon,
            delta=delta,
            units=units_of(plan),
            sampler=plan.sampler,
            parties=plan.parties,
            noise_at=plan.noise_at,
            share=_share(plan),
            ledger_kept=ledger is not None,
        ),
    )


def units_of(plan: Plan) -> int:
    """N, which δ is held against: how many parties, or records, or persons."""
    return plan.parties if plan.unit is Unit.PARTY else plan.records


def _person_steps(plan: Plan, facts: RunFacts) -> int:
    return person_steps(
        plan.unit, plan.adjacency, records=facts.records_per_person, parties=plan.parties
    )


def _accountant_version(plan: Plan) -> str:
    if plan.accountant in {"pld", "rdp"}:
        return f"{plan.method}, dp-accounting {version('dp-accounting')}"
    return f"{plan.method}, fedpriv {__version__}"


def who_sees_what(
    trust: TrustModel, *, noise_at: str, released: str, parties: int, share: NoiseShare | None
) -> tuple[str, ...]:
    """Who had to be trusted with what, in sentences; all of it follows from the arguments."""
    apart = released == RELEASED_BY_PARTY
    server = {
        "one-place": "one process held all records: whoever ran it must be trusted with them",
        "off": "the server sees every party's answer",
        "ideal": "one process held all records (simulation); the server's code was given sums only",
        "semi-honest": "a server that follows the protocol sees sums of answers only",
        "active": "even a malicious server sees sums of answers only",
    }[trust.secure_aggregation]
    tolerated = _tolerance(trust, parties=parties, share=share, apart=apart)
    if tolerated and apart:
        server = "the server sees the sums over every party by itself: masks hide none of them"
    noise = (
        "the parties add the noise before masking: nobody sees a sum without noise"
        if noise_at == "parties"
        else "the server adds the noise: it sees exact sums and must be trusted with them"
        + (", and not to compare sums over different sets of parties" if tolerated else "")
    )
    lines = [f"each party sees its own records and {released}", server, noise]
    if share is not None:
        lines.append(
            f"each party adds a share of the noise, of which {share.honest} are all the noise that "
            f"is stated here: it holds for every sum of at least {share.minimum} of the "
            f"{parties} parties, even if {share.colluders} of them tell the server what they "
            "added"
        )
    if trust.server_also_sees:
        lines.append(f"on the way to the release the server also sees {trust.server_also_sees}")
        if trust.secure_aggregation != "one-place":
            lines.append(POINTS_SEEN)
    if tolerated:
        lines.append(tolerated)
    return tuple(lines)


def _tolerance(trust: TrustModel, *, parties: int, share: NoiseShare | None, apart: bool) -> str:
    """How many parties may collude or be missing; empty where there are no masks."""
    if trust.secure_aggregation not in {"semi-honest", "active"}:
        return ""
    return tolerance(
        parties=parties,
        mode=trust.secure_aggregation,
        colluders=trust.colluding_parties,
        minimum=trust.least_parties,
        shares=None if share is None else share.honest,
        apart=apart,
    )


def _share(plan: Plan) -> NoiseShare | None:
    """What a party adds, if the noise is brought in shares; the same numbers in every release."""
    return next((m.share for m in plan.mechanisms if isinstance(m, SharedNoise)), None)


def unprotected(unit: Unit, adjacency: Adjacency, *, metrics_published: bool) -> tuple[str, ...]:
    """What is published beside the releases, and no noise protects."""
    sizes = (
        "the number of parties and of each party's records"
        if sizes_are_public(unit, adjacency)
        else f"the number of parties, and the number of {unit.counted} that was declared"
    )
    metrics = ("accuracy and loss on party data, published without noise",)
    return (
        sizes,
        "hyper-parameters, schedule and this statement",
        *(metrics if metrics_published else ()),
    )


def large_delta(delta: float, units: int) -> str | None:
    """The warning that δ is not small against 1/N: whole records could be published within it."""
    if delta * units < 0.1:
        return None
    return (
        f"delta = {delta:g} is not small against 1/N = {1 / units:.3g}: "
        "a mechanism that publishes a few whole records could meet it"
    )


def warnings_of(
    facts: RunFacts,
    trust: TrustModel,
    *,
    epsilon: float,
    delta: float,
    units: int,
    sampler: str,
    parties: int,
    noise_at: str,
    share: NoiseShare | None,
    ledger_kept: bool,
) -> tuple[str, ...]:
    """What a reader must not overlook, in sentences; all of it follows from the arguments.

    Args:
        facts: Of the run; its assumptions come first.
        trust: Who may see what.
        epsilon: As stated.
        delta: As stated.
        units: N, which δ is held against.
        sampler: What the accounting assumes.
        parties: m.
        noise_at: Who adds the noise.
        share: What a party adds, if the noise is brought in shares.
        ledger_kept: Whether earlier runs on the same data were counted.
    """
    warnings = list(facts.assumptions)
    if facts.releases_made is not None:
        warnings.append(
            f"the run ended early, after {facts.releases_made} releases: the budget of the data "
            "set did not pay for more. The stated epsilon is that of all that was planned: when a "
            "run ends depends on what others spent, hence on what was seen"
        )
    if warning := large_delta(delta, units):
        warnings.append(warning)
    if facts.sampler != sampler:
        warnings.append(
            f"the accounting assumes {sampler} sampling, but records were chosen by "
            f"{facts.sampler!r}: the stated epsilon does not hold"
        )
    if facts.audit_epsilon is not None and not within(facts.audit_epsilon, epsilon):
        warnings.append(
            f"an audit found epsilon >= {facts.audit_epsilon:g}, above the stated "
            f"{epsilon:g}: the implementation is broken"
        )
    if facts.metrics_published:
        warnings.append("metrics published without noise are outside the guarantee")
    if trust.secure_aggregation == "one-place" and parties > 1:
        warnings.append("the records of all parties were in one place: no party kept its own")
    if trust.secure_aggregation == "off":
        answer = "exact answer" if noise_at == "server" else "own answer"
        warnings.append(f"without secure aggregation the server sees every party's {answer}")
    if share is not None:
        warnings += _share_warnings(share, trust)
    if not ledger_kept and not facts.simulated:
        warnings.append("no ledger was kept: earlier runs on the same data are not counted")
    return tuple(warnings)


def _share_warnings(share: NoiseShare, trust: TrustModel) -> list[str]:
    """Where the protocol allows what the shares of noise were not sized for."""
    warnings = []
    if trust.secure_aggregation in {"one-place", "off"}:
        warnings.append(
            f"an answer carries 1/{share.honest} of the noise: against a server that sees every "
            "answer the stated epsilon does not hold"
        )
    elif trust.secure_aggregation != "ideal" and trust.least_parties < share.minimum:
        warnings.append(
            f"sums of {trust.least_parties} parties may be opened, and the noise is sized for "
            f"{share.minimum}: the stated epsilon does not hold"
        )
    if trust.colluding_parties > share.colluders:
        warnings.append(
            f"{trust.colluding_parties} parties may collude, and the noise is sized for "
            f"{share.colluders}: the stated epsilon does not hold"
        )
    return warnings
