"""Facts of a statement that no plan knows: people, trust, ledger, randomness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from fedpriv._validate import (
    require_choice,
    require_count,
    require_delta,
    require_non_negative,
)

SecureAggregation = Literal["one-place", "off", "ideal", "semi-honest", "active"]
SECURE_AGGREGATION: tuple[SecureAggregation, ...] = get_args(SecureAggregation)
Randomness = Literal["operating system", "seeded"]
RANDOMNESS: tuple[Randomness, ...] = ("operating system", "seeded")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustModel:
    """The trust model of a run: who may see what.

    Attributes:
        secure_aggregation: "one-place" (a real run in one process, which held all records), "off"
            (the server sees every answer), "ideal" (simulated in one process), "semi-honest" or
            "active" (the protocol, against a curious or a malicious server).
        colluding_parties: how many parties may share all they know with the server.
        dropped_parties: how many may vanish in mid-round.
        least_parties: fewest parties whose sum is ever opened.
        server_also_sees: what else the server learns on the way to a release, such as exact sums
            of gradients in a joint fit; empty if nothing.
    """

    secure_aggregation: SecureAggregation
    colluding_parties: int = 0
    dropped_parties: int = 0
    least_parties: int = 1
    server_also_sees: str = ""

    def __post_init__(self) -> None:
        require_choice(SECURE_AGGREGATION, secure_aggregation=self.secure_aggregation)
        require_non_negative(
            colluding_parties=self.colluding_parties, dropped_parties=self.dropped_parties
        )
        require_count(least_parties=self.least_parties)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerFacts:
    """The ledger of the data set at the time of the statement.

    Attributes:
        budget_epsilon: ε of the data set's whole budget, over all runs.
        budget_delta: its δ.
        spent_before_epsilon: ε that other runs had spent before this one, at ``budget_delta``.
        head: hash of the newest row; whoever keeps it can later detect a rewritten ledger.
        rows: number of rows.
    """

    budget_epsilon: float
    budget_delta: float
    spent_before_epsilon: float
    head: str
    rows: int

    def __post_init__(self) -> None:
        require_non_negative(
            budget_epsilon=self.budget_epsilon,
            spent_before_epsilon=self.spent_before_epsilon,
            rows=self.rows,
        )
        require_delta(budget_delta=self.budget_delta)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """The circumstances of a run.

    Attributes:
        run: its identifier.
        data: name of the data set.
        simulated: whether the run was a simulation, which promises nothing.
        randomness: where the noise came from.
        sampler: how records were really chosen: "full batch", "Poisson", or another name.
        records_per_person: most records that one person has in the data.
        person_records: under the person unit, k: most records of a person that one party uses; None
            for any number.
        person_parties: under the person unit, p: at how many parties a person may have records.
        tuning: what was done to choose hyper-parameters, and who paid for it.
        outcome: which files a release consists of, in a sentence; empty for a simulation.
        releases_made: how many releases there were, if the run ended before the last one that was
            planned; None if it did not.
        metrics_published: whether accuracy or loss on party data is published without noise.
        audit_epsilon: an empirical lower bound on ε, if an audit was made.
        guests: code of the run that is not fedpriv's, each with its SHA-256.
        coefficients: the table of coefficients with their intervals, line by line, of a run whose
            release is one; in the text alone, since no party could check them before it signs.
        assumptions: what the guarantee takes from somebody's word, without proof; a warning each.
        date: ISO date, if the statement is to carry one.
    """

    run: str
    data: str
    simulated: bool
    randomness: Randomness
    sampler: str
    records_per_person: int = 1
    person_records: int | None = None
    person_parties: int = 1
    tuning: str = "none: all hyper-parameters were fixed beforehand"
    outcome: str = ""
    releases_made: int | None = None
    metrics_published: bool = False
    audit_epsilon: float | None = None
    guests: tuple[str, ...] = ()
    coefficients: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    date: str | None = None

    def __post_init__(self) -> None:
        require_choice(RANDOMNESS, randomness=self.randomness)
        require_count(
            records_per_person=self.records_per_person, person_parties=self.person_parties
        )
        if self.person_records is not None:
            require_count(person_records=self.person_records)
        if self.releases_made is not None:
            require_non_negative(releases_made=self.releases_made)
        if self.audit_epsilon is not None:
            require_non_negative(audit_epsilon=self.audit_epsilon)
        if not self.simulated and self.randomness != "operating system":
            raise ValueError(
                "randomness must be 'operating system' for a real run, got 'seeded': whoever knows "
                "the seed can subtract the noise. Mark the run as simulated, or run it for real."
            )
