"""Statement files: what a run guarantees, as text, JSON and a registry entry in its directory."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import yaml

from fedpriv._durable import replace_file
from fedpriv.privacy.mechanisms.shares import SharedNoise
from fedpriv.privacy.statement import (
    LedgerFacts,
    RunFacts,
    TrustModel,
    make_statement,
    to_registry_yaml,
    to_text,
)
from fedpriv.privacy.statement.statement import SIMULATED
from fedpriv.simulations.engines.parties import protection
from fedpriv.simulations.run.files import write_json
from fedpriv.simulations.run.ledgers import names_of
from fedpriv.simulations.run.outcome import (
    DEPLOYED_DESCRIBED_SENTENCE,
    DEPLOYED_SENTENCE,
    DESCRIBED_SENTENCE,
    SENTENCE,
)

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.privacy.ledger import Ledger
    from fedpriv.privacy.planning.plan import Plan
    from fedpriv.simulations.experiment.sections import TuningSection
    from fedpriv.simulations.run.prepare import Prepared

_NOTHING = "NO GUARANTEE: the strategy adds no noise, and its model may reveal any record"
_NOISE_FREE = (
    "NO GUARANTEE: privacy.epsilon = 'inf', for study: no noise was added, and the model may "
    "reveal any record"
)


def write_statement(
    directory: Path,
    prepared: Prepared,
    plan: Plan | None,
    *,
    run: str,
    ledger: Ledger | None,
    server_also_sees: str = "",
    made: int | None = None,
) -> None:
    """The statement of a run; ``ledger`` is that of a real release, and None for a simulation.

    ``made`` is how many releases there were, if they are fewer than planned.
    """
    if plan is None:
        _write_nothing(directory, prepared, run)
        return
    statement = make_statement(
        plan,
        facts=_facts(prepared, plan, run=run, simulated=ledger is None, made=made),
        trust=_trust(prepared, plan, real=ledger is not None, also=server_also_sees),
        ledger=None if ledger is None else _ledger_facts(ledger, run),
    )
    replace_file(directory / "statement.txt", to_text(statement))
    write_json(directory / "statement.json", statement.to_dict())
    replace_file(directory / "statement.yaml", to_registry_yaml(statement))


def _trust(prepared: Prepared, plan: Plan, *, real: bool, also: str) -> TrustModel:
    """Who had to be trusted: in a release without deployment, whoever ran the process."""
    section, parties = prepared.experiment.run, prepared.task.parties
    if real and section.engine != "deployment":
        return TrustModel(secure_aggregation="one-place", server_also_sees=also)
    if section.level == "off":
        ideal = section.engine == "vectorized"
        return TrustModel(secure_aggregation="ideal" if ideal else "off", server_also_sees=also)
    agreed = protection(prepared.experiment)
    shares = (m.share.minimum for m in plan.mechanisms if isinstance(m, SharedNoise))
    masks = agreed.parameters(parties, minimum=next(shares, 0))
    return TrustModel(
        secure_aggregation=section.level,
        colluding_parties=masks.colluders,
        dropped_parties=masks.missing,
        least_parties=masks.minimum,
        server_also_sees=also,
    )


def _facts(
    prepared: Prepared, plan: Plan, *, run: str, simulated: bool, made: int | None
) -> RunFacts:
    experiment = prepared.experiment
    outcome = DESCRIBED_SENTENCE if experiment.describing else SENTENCE
    if experiment.run.engine == "deployment":
        described = experiment.describing
        outcome = DEPLOYED_DESCRIBED_SENTENCE if described else DEPLOYED_SENTENCE
    return RunFacts(
        run=run,
        data=experiment.data.title,
        simulated=simulated,
        randomness="seeded" if simulated else "operating system",
        sampler=plan.sampler,
        records_per_person=experiment.data.records_per_person,
        person_records=experiment.persons.records,
        person_parties=experiment.persons.parties,
        tuning=tuning_sentence(experiment.tuning),
        outcome="" if simulated else outcome,
        releases_made=made,
        # A simulation shows metrics on records that the parties hold; a real release does not.
        metrics_published=(
            simulated and not experiment.data.public_test and not experiment.describing
        ),
        guests=tuple(map(_guest_sentence, experiment.guest_code)),
        assumptions=_assumptions(prepared),
        # A simulation can be repeated to the letter, hence carries no date.
        date=None if simulated else datetime.now(tz=UTC).date().isoformat(),
    )


def _guest_sentence(guest: dict[str, str]) -> str:
    """Whose code it is, and what was looked at before it was used."""
    sentence = f"{guest['kind']} {guest['source']}, sha256 {guest['sha256']}"
    if guest["kind"] in ("model", "loss"):
        sentence += "; that it treats every record on its own was tested, not proved"
    return sentence


def _assumptions(prepared: Prepared) -> tuple[str, ...]:
    """What a guarantee takes from somebody's word."""
    return (*_of_persons(prepared), *_of_a_loss(prepared), *_of_a_start(prepared))


def _of_persons(prepared: Prepared) -> tuple[str, ...]:
    """What a guarantee about persons takes from those who keep the records."""
    persons = prepared.task.persons
    if persons is None:
        return ()
    who = "a person is whom the records call one: somebody with two identifiers counts as two"
    if prepared.experiment.run.engine != "deployment":
        return (who,)
    most = "one party" if persons.parties == 1 else f"{persons.parties} parties"
    return who, f"that nobody has records at more than {most} is a promise, which nobody can check"


def _of_a_loss(prepared: Prepared) -> tuple[str, ...]:
    """What a guarantee about minimisers takes from the author of a loss; clipping takes nothing."""
    own = next((g for g in prepared.experiment.guest_code if g["kind"] == "loss"), None)
    if own is None or not prepared.info.convex_only:
        return ()
    loss = prepared.task.loss
    sentence = (
        f"the noise is calibrated to constants of the loss {own['source']} (gradient bound "
        f"{loss.lipschitz:g}, smoothness {loss.smoothness:g}, convexity) that were declared by its "
        "author and not refuted by a search, which is no proof: if they are wrong, the stated "
        "epsilon does not hold"
    )
    return (sentence,)


def _of_a_start(prepared: Prepared) -> tuple[str, ...]:
    """What a guarantee takes for granted of a model that the run began with."""
    start, section = prepared.experiment.start_file, prepared.experiment.model
    if start is None:
        return ()
    kept = f"; its layers {', '.join(section.frozen)} are in the model unchanged"
    sentence = (
        f"the run began with {start['source']}, sha256 {start['sha256']}, which is taken to be "
        "public: if it was made from the same records, what it tells of them is not in the stated "
        f"epsilon{kept if section.frozen else ''}"
    )
    return (sentence,)


def tuning_sentence(tuning: TuningSection | None) -> str:
    """Where the hyper-parameters came from, and who paid."""
    if tuning is None:
        return "none: all hyper-parameters were fixed beforehand"
    how = f"over {len(tuning.grid)} keys by fedpriv" if tuning.grid else "beforehand, as declared"
    return f"on the public data set {tuning.on!r}, {how}; no budget was spent"


def _ledger_facts(ledger: Ledger, run: str) -> LedgerFacts:
    budget = ledger.settings.budget
    return LedgerFacts(
        budget_epsilon=budget.epsilon,
        budget_delta=budget.delta,
        spent_before_epsilon=ledger.spent(
            before_run=next(names_of(ledger, run), run)
        ).guarantee.epsilon,
        head=ledger.head,
        rows=sum(1 for _ in ledger.rows()),
    )


def _write_nothing(directory: Path, prepared: Prepared, run: str) -> None:
    code = prepared.experiment.guest_code
    reason = _NOISE_FREE if prepared.noise_free else _NOTHING
    values = {
        "status": SIMULATED,
        "guarantee": None,
        "reason": reason,
        "run": {"run": run, "data": prepared.experiment.data.title, "simulated": True},
        "strategy": prepared.info.name,
        **({"guests": code} if code else {}),
    }
    text = f"{SIMULATED}\n{reason}.\nStrategy {prepared.info.name}, run {run}.\n"
    text += "".join(f"Code that is not fedpriv's: {_guest_sentence(guest)}.\n" for guest in code)
    replace_file(directory / "statement.txt", text)
    write_json(directory / "statement.json", values)
    replace_file(directory / "statement.yaml", f"# {SIMULATED}\n" + yaml.safe_dump(values))
