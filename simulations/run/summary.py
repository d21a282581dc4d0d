"""The summary of a finished run: what `run --json` prints, and `result.json` holds.

Of a release it holds what `fedpriv.simulations.run.release_outcome` states; what the run cost stays
with the owner.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from statistics import fmean
from time import perf_counter
from typing import TYPE_CHECKING, Any

import fedpriv
from fedpriv.inference.coefficients import CoefficientTable
from fedpriv.learning.crew import Crew
from fedpriv.privacy.rounding import rounded_up
from fedpriv.privacy.statement.statement import large_delta
from fedpriv.privacy.unit import Unit
from fedpriv.simulations.counted import parties_in_words
from fedpriv.simulations.experiment.budgets import INFINITE
from fedpriv.simulations.experiment.catalogue import PARTY_ALONE
from fedpriv.simulations.run.history import Record
from fedpriv.simulations.run.metrics.party_alone import train_alone
from fedpriv.simulations.run.metrics.party_metrics import party_metrics
from fedpriv.simulations.run.metrics.scores import Measures
from fedpriv.simulations.run.prepare import (
    build_federation,
    build_strategy,
    prepare,
    serving,
    train,
)
from fedpriv.simulations.run.release_outcome import RESULT, sift
from fedpriv.simulations.run.statement.coefficients import coefficient_table
from fedpriv.strategies.tuned import Tuned

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from fedpriv.federation.federation import Sum
    from fedpriv.federation.queries.kinds import Query
    from fedpriv.federation.strategy.base import SumStrategy
    from fedpriv.privacy.planning.plan import Plan
    from fedpriv.simulations.experiment.file import Experiment
    from fedpriv.simulations.run.prepare import Prepared


_WEAK = 10.0
"""The largest ε of a run without a warning on the screen: e^10 is 22,000."""


def simulate(experiment: Experiment, *, workers: int | None = None) -> dict[str, Any]:
    """One of many runs on the same data, without writing anything down; its result."""
    prepared = prepare(experiment, keep=True)
    if workers is not None:
        evaluator = replace(prepared.evaluator, crew=Crew(workers))
        prepared = replace(prepared, evaluator=evaluator)
    if not _tested(prepared):
        raise ValueError(
            "data.test_fraction must be positive to compare settings, got 0: without test records "
            "there is nothing to compare them by."
        )
    if prepared.info.name == PARTY_ALONE:
        return summary_alone(prepared, run=prepared.run)[0]
    strategy = build_strategy(prepared, run=prepared.run)
    federation = build_federation(
        prepared, run=prepared.run, workers=workers, rounds=strategy.rounds
    )
    record = Record(prepared=prepared, strategy=strategy, metrics=False)
    record.follow(federation)

    def watch(query: Query, answer: Sum) -> bool:
        record.add(query, answer)
        return True

    with serving(federation):
        train(strategy, federation, watch)
    return summary(record, run=prepared.run)


def summary(record: Record, *, run: str) -> dict[str, Any]:
    """The result of a run of a strategy, as JSON-ready values."""
    plan, spent = record.strategy.plan, costs(record)  # before metrics take their time
    score, theta = record.score(), record.strategy.theta
    evaluator = record.prepared.evaluator
    values = {
        **_identity(record.prepared, run=run, simulated=not record.release),
        **_guarantee(record.prepared, plan),
        "accuracy": score.accuracy if score else None,
        "loss": score.loss if score else None,
        **asdict(evaluator.measure(theta, loss=score.loss) if score else Measures()),
        "test_records": _tested(record.prepared) if score else None,
        "rounds": record.made,
        "stopped": record.strategy.stopped or None,
        "cut_short": record.strategy.cut_short,
        "regulariser": _regulariser(record),
        "noise_stddev": 0.0 if record.prepared.noise_free else record.noise,
    }
    if record.prepared.experiment.paid_tuning:
        values["tuned"] = chosen_of(record.strategy)
    table = coefficient_table(record.prepared, record.strategy)
    if table is not None:
        values["coefficients"] = table.to_dict()
    if record.release:
        return sift(values, RESULT)
    described = record.prepared.experiment.describing
    clipped = [entry.clipped for entry in record.rounds if entry.clipped is not None]
    return {
        **values,
        **_of_simulation(record.prepared),
        **({} if described else party_metrics(record.prepared, theta).to_dict()),
        **({} if record.training is None else record.training.summary(theta)),
        "clip_fraction": fmean(clipped) if clipped else None,
        **spent,
    }


def _regulariser(record: Record) -> float | None:
    """λ of the problem that was solved: that of the model, or what a strategy's rule made of it."""
    return None if record.prepared.experiment.describing else record.strategy.task.regulariser


def chosen_of(strategy: SumStrategy) -> dict[str, Any] | None:
    """The setting that a tuning on private records released; None if there was none."""
    chosen = strategy.chosen if isinstance(strategy, Tuned) else None
    return None if chosen is None else dict(chosen)


def costs(record: Record) -> dict[str, Any]:
    """What a run cost in time and bytes, which follows from the records: of a release private."""
    return {
        "seconds": record.seconds,
        "bytes": None if record.strategy.concealed else record.bytes_sent,
        "exchanges": None if record.report is None else record.report.to_dict(),
    }


def summary_alone(prepared: Prepared, *, run: str) -> tuple[dict[str, Any], NDArray[Any]]:
    """The result of every party by itself, averaged, and all the parties' models."""
    started = perf_counter()
    alone = train_alone(prepared.data, prepared.task, prepared.evaluator)
    values = {
        **_identity(prepared, run=run, simulated=True),
        **_guarantee(prepared, None),
        **_of_simulation(prepared),
        "accuracy": alone.accuracy,
        "loss": alone.loss,
        **asdict(Measures()),
        "test_records": _tested(prepared),
        **dict.fromkeys(("worst_party", "fairness_gap", "per_party")),  # there is no common model
        "worst_accuracy": min(alone.accuracies, default=None),
        "best_accuracy": max(alone.accuracies, default=None),
        "rounds": 0,
        "stopped": None,
        "cut_short": False,
        "seconds": perf_counter() - started,
        "noise_stddev": None,
        "regulariser": prepared.task.regulariser,
        "clip_fraction": None,
        "bytes": 0,
    }
    return values, alone.models.numpy()


def _identity(prepared: Prepared, *, run: str, simulated: bool) -> dict[str, Any]:
    experiment, task = prepared.experiment, prepared.task
    return {
        "run": run,
        "experiment": experiment.name,
        "config_hash": experiment.config_hash,
        "fedpriv": fedpriv.__version__,
        "simulated": simulated,
        "data": experiment.data.title,
        "model": None if experiment.describing else experiment.model.title,
        "strategy": prepared.info.name,
        "label": experiment.strategy.title,
        "options": experiment.strategy.options,
        "guests": experiment.guest_code or None,
        "start": experiment.start_file,
        "private": prepared.info.private and not prepared.noise_free,
        "engine": experiment.run.engine,
        "secure_aggregation": _aggregation(prepared, simulated=simulated),
        "parties": task.parties,
        "records": task.records,
        "smallest_party": task.smallest,
        "dimension": task.dimension,
    }


def _of_simulation(prepared: Prepared) -> dict[str, Any]:
    """What only a simulation tells."""
    return {
        "seed": prepared.experiment.run.seed,
        "majority_accuracy": prepared.evaluator.majority(),
        "party_sizes": list(prepared.task.sizes),
    }


def _tested(prepared: Prepared) -> int:
    return len(prepared.data.dataset.test)


def _aggregation(prepared: Prepared, *, simulated: bool) -> str:
    """How answers were protected on the way to a sum, as statements call it."""
    section = prepared.experiment.run
    if not section.ideal:
        return section.level
    return "ideal" if simulated else "one-place"


def _guarantee(prepared: Prepared, plan: Plan | None) -> dict[str, Any]:
    """What was spent, by the plan, and what the experiment allowed: a form for study may differ.

    ``epsilon`` is None where nothing is promised; the budget of a twin without noise is "inf", and
    ``twin_of`` the ε of the private run whose settings it has.
    """
    twin_of = prepared.experiment.privacy.twin_of if prepared.noise_free else None
    if plan is None:
        nothing: dict[str, Any] = dict.fromkeys(("epsilon", "delta", "adjacency", "unit"))
        budget = INFINITE if prepared.noise_free else None
        return {**nothing, "epsilon_budget": budget, "twin_of": twin_of}
    return {
        "twin_of": twin_of,
        "epsilon": plan.epsilon,
        "delta": plan.budget.delta,
        "adjacency": plan.adjacency.value,
        "unit": plan.unit.value,
        "epsilon_budget": prepared.experiment.privacy.epsilon,
    }


def _further(result: Mapping[str, Any]) -> list[str]:
    """Metrics beside accuracy and loss, and of the party that is served least."""
    titles = {"auc": "AUC", "f1": "F1", "balanced_accuracy": "balanced accuracy", "r2": "R²"}
    titles |= {"rmse": "RMSE", "mae": "MAE"}
    told = [
        f"{title} {result[key]:.4g}" for key, title in titles.items() if result[key] is not None
    ]
    lines = [", ".join(told)] if told else []
    if result.get("objective") is not None:
        lines.append(_trained(result))
    worst, each = result.get("worst_party"), result.get("per_party")
    if worst is not None and each is not None and result["parties"] > 1:
        least, gap = f"{worst:.4g}", f"{result['fairness_gap']:.4g}"
        if each["metric"] == "accuracy":  # in percent, like that of all
            least, gap = f"{100 * worst:.2f} %", f"{100 * result['fairness_gap']:.2f} points"
        lines.append(
            f"{each['metric']} of each party on its own {each['on']} records: {least} at the "
            f"worst, {gap} between worst and best"
        )
    return lines


def _trained(result: Mapping[str, Any]) -> str:
    """Training metrics, with what the certificate of the minimum leaves open."""
    told = f"training objective {result['objective']:.6g}"
    if result["excess_risk"] is None:
        return f"{told}; its minimum is not known: that needs a linear model and a positive l2"
    return (
        f"{told}, excess empirical risk {result['excess_risk']:.4g} (f* certified to "
        f"{result['excess_risk_error']:.1g}), {result['optimality_gap']:.4g} from the minimiser "
        f"(to {result['optimality_gap_error']:.1g})"
    )


def in_words(result: Mapping[str, Any], *, drawn_test: bool = False) -> list[str]:
    """A result in a few lines for people; bounds are rounded up, never down.

    ``drawn_test`` says that a hash drew test records, which a release makes no use of.
    """
    rounds = result["rounds"]
    counted = Unit(result["unit"] or "record").counted
    took = f"{result['seconds']:.2f} s (simulated)" if result["simulated"] else "released"
    title = f"{result['label']} on {result['data']}"
    held = f"{parties_in_words(result['parties'])}, {result['records']} {counted}"
    lines = [f"{title}: {held}, {rounds} round{'' if rounds == 1 else 's'}, {took}"]
    if result["epsilon_budget"] == INFINITE:
        lines.append("no privacy: epsilon = ∞, the run added no noise; for study alone")
    elif result["epsilon"] is None:
        lines.append("no privacy is promised: the strategy adds no noise")
    else:
        lines.append(
            f"epsilon <= {rounded_up(result['epsilon'])} at delta = "
            f"{rounded_up(result['delta'])}   ({Unit(result['unit']).words}, {result['adjacency']})"
        )
        if warning := large_delta(result["delta"], result["records"]):
            lines.append(f"warning: {warning}")
        if result["epsilon"] > _WEAK:
            lines.append(
                f"warning: epsilon = {rounded_up(result['epsilon'])} promises little: what is seen "
                "of a run may be e^epsilon times as likely with one data set as with its neighbour"
            )
    if result["loss"] is None:
        lines.append("metrics: none; there are no test records that are declared public")
        if drawn_test:
            lines.append(
                "the records that a hash drew for testing were not used: data.test_fraction = 0 "
                "trains on all of them, the next time"
            )
    else:
        accuracy = result["accuracy"]
        share = "" if accuracy is None else f"accuracy {100 * accuracy:.2f} %, "
        lines.append(f"{share}loss {result['loss']:.4f} on {result['test_records']} test records")
        lines += _further(result)
    if result.get("tuned"):
        settings = ", ".join(f"{key} = {value}" for key, value in result["tuned"].items())
        lines.append(f"tuned on the private records, paid for: {settings}")
    if result.get("coefficients") is not None:
        lines += CoefficientTable.from_dict(result["coefficients"]).lines()
    if result["stopped"]:
        lines.append(f"stopped early: {result['stopped']}")
    return lines
