"""Statement files: what a run guarantees, as text, JSON and a registry entry in its directory."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import yaml

from fedpriv._durable import replace_file
from fedpriv.inference.coefficients import CoefficientTable
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
from fedpriv.simulations.run.release_outcome import (
    DEPLOYED_DESCRIBED_SENTENCE,
    DEPLOYED_SENTENCE,
    DESCRIBED_SENTENCE,
    SENTENCE,
)
from fedpriv.simulations.run.statement.assumptions import (
    assumptions,
    of_a_person_column,
    of_a_test_column,
    paid_sentence,
    tuning_sentence,
)
from fedpriv.simulations.run.statement.audited import audited_epsilon

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from fedpriv.learning.losses import Loss
    from fedpriv.privacy.ledger import Ledger
    from fedpriv.privacy.planning.plan import Plan
    from fedpriv.simulations.experiment.file import Experiment
    from fedpriv.simulations.run.prepare import Prepared
    from fedpriv.strategies import StrategyInfo

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
    coefficients: Mapping[str, Any] | None = None,
    chosen: Mapping[str, Any] | None = None,
) -> None:
    """The statement of a run; ``ledger`` is that of a real release, and None for a simulation.

    ``made`` is how many releases there were, if they are fewer than planned; ``coefficients`` the
    table of inference; ``chosen`` the setting that a tuning on private records released.
    """
    if plan is None:
        _write_nothing(directory, prepared, run)
        return
    facts = _facts(prepared, plan, run=run, simulated=ledger is None, made=made)
    facts = replace(facts, audit_epsilon=audited_epsilon(directory))
    if chosen is not None:
        facts = replace(facts, tuning=paid_sentence(plan, chosen))
    statement = make_statement(
        plan,
        facts=replace(facts, coefficients=_lines(coefficients)),
        trust=_trust(prepared, plan, real=ledger is not None, also=server_also_sees),
        ledger=None if ledger is None else _ledger_facts(ledger, run),
    )
    replace_file(directory / "statement.txt", to_text(statement))
    write_json(directory / "statement.json", statement.to_dict())
    replace_file(directory / "statement.yaml", to_registry_yaml(statement))


def _lines(coefficients: Mapping[str, Any] | None) -> tuple[str, ...]:
    if coefficients is None:
        return ()
    return tuple(CoefficientTable.from_dict(coefficients).lines())


def _trust(prepared: Prepared, plan: Plan, *, real: bool, also: str) -> TrustModel:
    """Who had to be trusted: in a release without deployment, whoever ran the process."""
    section, parties = prepared.experiment.run, prepared.task.parties
    if real and section.engine != "deployment":
        return TrustModel(secure_aggregation="one-place", server_also_sees=also)
    if section.level == "off":
        ideal = section.ideal
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
    deployed = experiment.run.engine == "deployment"
    # Deployed parties have schemas of their own; a description is of all records.
    untested = deployed or experiment.describing
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
        outcome="" if simulated else _outcome(experiment),
        releases_made=made,
        # A simulation shows metrics on records that the parties hold; a real release does not.
        metrics_published=(
            simulated and not experiment.data.public_test and not experiment.describing
        ),
        guests=tuple(map(_guest_sentence, experiment.guest_code)),
        assumptions=(
            *assumptions(experiment, prepared.info, loss=prepared.task.loss),
            *(() if untested else of_a_test_column(prepared.data.dataset.schema)),
            *(() if deployed else of_a_person_column(prepared.data.dataset.schema, experiment)),
        ),
        # A simulation can be repeated to the letter, hence carries no date.
        date=None if simulated else datetime.now(tz=UTC).date().isoformat(),
    )


def _guest_sentence(guest: dict[str, str]) -> str:
    """Whose code it is, and what was looked at before it was used."""
    sentence = f"{guest['kind']} {guest['source']}, sha256 {guest['sha256']}"
    if guest["kind"] in ("model", "loss"):
        sentence += "; that it treats every record on its own was tested, not proved"
    if guest["kind"] == "model":
        sentence += "; weights that it brings itself are taken to be public"
    return sentence


def _outcome(experiment: Experiment) -> str:
    """What a release consists of."""
    if experiment.run.engine == "deployment":
        return DEPLOYED_DESCRIBED_SENTENCE if experiment.describing else DEPLOYED_SENTENCE
    return DESCRIBED_SENTENCE if experiment.describing else SENTENCE


def deployed_words(experiment: Experiment, info: StrategyInfo, *, loss: Loss) -> dict[str, Any]:
    """What the statement of a deployed run says of it in words, as a party works it out itself."""
    return {
        "data": experiment.data.title,
        "tuning": tuning_sentence(experiment.tuning),
        "outcome": _outcome(experiment),
        "assumptions": list(assumptions(experiment, info, loss=loss)),
    }


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
