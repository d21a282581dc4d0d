"""Questions of NIST SP 800-226 about a claim of differential privacy, answered from a run's files.

The publication ("Guidelines for Evaluating Differential Privacy Guarantees", 2025) tells evaluators
of such a claim what to examine. The questions are in our words, in its order: the guarantee, its
mechanism, its utility, who is trusted, how it is implemented, and the data around it. Each is
answered from files alone, or is said not to be covered, with what a person has to add.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fedpriv.simulations.dossier import facts_of_claim as claim
from fedpriv.simulations.dossier import facts_of_run as run

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedpriv.simulations.dossier.evidence import Evidence

NOT_COVERED = "not covered: "
"""The beginning of an answer that the files of a run cannot give."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question, and how its answer follows from the evidence.

    Attributes:
        id: A short name, for ever.
        topic: Part of the publication that it belongs to.
        question: In our words.
        source: Where in the files the answer stands; empty where no file has it.
        answer: The answer, or what begins with `NOT_COVERED`.
    """

    id: str
    topic: str
    question: str
    source: str
    answer: Callable[[Evidence], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A question with its answer, as the dossier has it."""

    id: str
    topic: str
    question: str
    covered: bool
    answer: str
    source: str

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return asdict(self)


def answers(evidence: Evidence) -> tuple[Answer, ...]:
    """Every question, answered line by line."""
    found = []
    for each in QUESTIONS:
        text = each.answer(evidence)
        covered = not text.startswith(NOT_COVERED)
        found.append(
            Answer(
                id=each.id,
                topic=each.topic,
                question=each.question,
                covered=covered,
                answer=text,
                source=each.source if covered else "",
            )
        )
    return tuple(found)


def _left(words: str) -> Callable[[Evidence], str]:
    """An answer that no file of a run can give."""
    return lambda _: NOT_COVERED + words


def _all(topic: str, *rows: tuple[str, str, str, Callable[[Evidence], str]]) -> list[Question]:
    return [
        Question(id=id_, topic=topic, question=question, source=source, answer=answer)
        for id_, question, source, answer in rows
    ]


QUESTIONS: tuple[Question, ...] = (
    *_all(
        "The guarantee",
        ("unit", ("Whose data does the guarantee hide, and in what may two neighbouring data "
                 "sets differ?"),
         "statement.json: guarantee.unit, adjacency, neighbours", claim.unit),
        ("person", "What is guaranteed to a person, who may be in the data more than once?",
         "statement.json: guarantee.per_person, run", claim.person),
        ("variant", "Which form of differential privacy is it?",
         "statement.json: guarantee", claim.variant),
        ("epsilon", "What is epsilon, and what does it bound?",
         "statement.json: guarantee.epsilon, attack_advantage", claim.epsilon),
        ("delta", "What is delta, and is it small against one over the number of units?",
         "statement.json: guarantee.delta, delta_times_units", claim.delta),
        ("choice", "Who chose epsilon and delta, and why are they small enough here?",
         "", _left("why these numbers were chosen. The budget was fixed before the run; the "
                   "reason for it is "
                   "for its owner to give.")),
        ("exceptions", "What is published that the guarantee does not protect?",
         "statement.json: unprotected, run.outcome", claim.unprotected),
    ),
    *_all(
        "Mechanism and composition",
        ("query", "What is computed from the data?",
         "statement.json: plan.query, plan.released", claim.query),
        ("sensitivity", "How much can one unit change it, and what enforces that bound?",
         "plan.json: mechanisms, clip_norm", claim.sensitivity),
        ("mechanism", "Which noise is added, and how much?",
         "plan.json: mechanisms", claim.mechanism),
        ("sampling", "Are records sampled, and does the accounting assume what was done?",
         "statement.json: run.sampler, plan.sampling_rate", claim.sampling),
        ("composition", "How do the releases of this run add up?",
         "statement.json: guarantee.accountant, releases", claim.composition),
        ("earlier", "What have other releases of the same data spent, and what holds the total?",
         "statement.json: ledger", claim.earlier),
        ("post-processing", "Does anything after the noise touch the data again?",
         "statement.json: run.outcome, run.metrics_published", claim.post_processing),
        ("tuning", "How were hyper-parameters chosen, and was that paid for?",
         "statement.json: run.tuning", claim.tuning),
    ),
    *_all(
        "Utility and bias",
        ("accuracy", "How accurate is what was released, and how was that measured?",
         "result.json: accuracy and other metrics, test_records", run.accuracy),
        ("systematic", "Which systematic errors do bounds, clipping and noise introduce?",
         "config.toml: data; plan.json: clip_norm", run.systematic),
        ("groups", "Are small groups served worse?",
         "", _left("how groups of people are served. Noise and clipping weigh more on few records; "
                   "errors by group must be measured on data that may be used for it.")),
    ),
    *_all(
        "Trust",
        ("trust", "Who must be trusted with data before noise is on it?",
         "statement.json: trust.sees, plan.noise_at", run.trust),
        ("collusion", "What if parties collude with the server, or drop out?",
         "statement.json: trust", run.collusion),
        ("honesty", "What if a party lies, or alters its records to do harm?",
         "", _left("parties that answer falsely, and denial of service. A false answer can "
                   "spoil the result; where parties bring the noise, one that adds none counts as "
                   "a "
                   "colluder.")),
    ),
    *_all(
        "Implementation",
        ("randomness", "Where do random numbers come from?",
         "statement.json: run.randomness", run.randomness),
        ("floating-point", "Can floating-point arithmetic betray what the noise hides?",
         "plan.json: step", run.floating_point),
        ("side-channels", "Do time, memory or failures reveal anything about the data?",
         "statement.json: not_covered", run.side_channels),
        ("software", "Which software, and whose code?",
         "statement.json: fedpriv, run.guests", run.software),
        ("verification", "How was the implementation tested against the claim?",
         "audit.json", run.verification),
        ("assumptions", "On whose word does the guarantee rest, without proof?",
         "statement.json: run.assumptions, warnings", run.assumptions),
    ),
    *_all(
        "The data around it",
        ("collection", "Is the data exposed between its collection and the noise?",
         "statement.json: trust.secure_aggregation", run.collection),
        ("access", "Who may read records, keys, ledgers and what the run left beside its outcome?",
         "statement.json: run.outcome", run.access),
        ("retention", "What happens to the data after the run?",
         "", _left("retention and deletion. The files of a run say nothing about it.")),
        ("population", "What may still be learned about a person?",
         "statement.json: not_covered", run.population),
    ),
)  # fmt: skip
"""All questions, in order."""
