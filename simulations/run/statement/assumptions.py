"""Assumptions of a statement: what a guarantee takes from somebody's word, in sentences.

They follow from the experiment, so that a deployed party knows them as its server does.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpriv.privacy.planning.tuning.tuning import TuningPlan
from fedpriv.privacy.rounding import rounded_up
from fedpriv.privacy.unit import Unit
from fedpriv.simulations.public.probing import is_table
from fedpriv.simulations.run.prepare import person_bounds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedpriv.data import Schema
    from fedpriv.learning.losses import Loss
    from fedpriv.privacy.planning.plan import Plan
    from fedpriv.simulations.experiment.file import Experiment
    from fedpriv.simulations.experiment.tuning_section import TuningSection
    from fedpriv.strategies import StrategyInfo


def assumptions(experiment: Experiment, info: StrategyInfo, *, loss: Loss) -> tuple[str, ...]:
    """What the guarantee of a run takes from somebody's word.

    Args:
        experiment: Of the run, with every option filled in.
        info: Of its strategy.
        loss: That it learns by.
    """
    return (
        *_of_persons(experiment, info),
        *(_of_a_loss(experiment, loss) if info.minimises else ()),
        *_of_a_start(experiment),
        *_of_a_schedule(experiment),
        *_of_test_records(experiment),
    )


def _of_persons(experiment: Experiment, info: StrategyInfo) -> tuple[str, ...]:
    """What a guarantee about persons takes from those who keep the records."""
    persons = person_bounds(experiment, info)
    if persons is None:
        return ()
    who = "a person is whom the records call one: somebody with two identifiers counts as two"
    if experiment.run.engine != "deployment":
        return (who,)
    most = "one party" if persons.parties == 1 else f"{persons.parties} parties"
    return (
        who,
        f"that nobody has records at more than {most} is an assumption, which nobody can check",
    )


def _of_a_loss(experiment: Experiment, loss: Loss) -> tuple[str, ...]:
    """What a guarantee about minimisers takes from the author of a loss; clipping takes nothing."""
    own = next((g for g in experiment.guest_code if g["kind"] == "loss"), None)
    if own is None:
        return ()
    # Slopes of one sign need less noise in a perturbed objective.
    sides = ", slopes of one sign" if loss.one_sided else ""
    sentence = (
        f"the noise is calibrated to constants of the loss {own['source']} (gradient bound "
        f"{loss.lipschitz:g}, smoothness {loss.smoothness:g}, convexity{sides}, rounding of a "
        f"slope {loss.slope_rounding:g}) that were declared by its "
        "author and not refuted by a search, which is no proof: if they are wrong, the stated "
        "epsilon does not hold"
    )
    return (sentence,)


def _of_a_start(experiment: Experiment) -> tuple[str, ...]:
    """What a guarantee takes for granted of a model that the run began with."""
    start, section = experiment.start_file, experiment.model
    if start is None:
        return ()
    kept = f"; its layers {', '.join(section.frozen)} are in the model unchanged"
    sentence = (
        f"the run began with {start['source']}, sha256 {start['sha256']}, which is taken to be "
        "public: if it was made from the same records, what it reveals about them is not in the "
        f"stated epsilon{kept if section.frozen else ''}"
    )
    return (sentence,)


def _of_a_schedule(experiment: Experiment) -> tuple[str, ...]:
    """What a guarantee takes for granted of a table that the noise of the rounds follows from."""
    schedule = experiment.strategy.options.get("schedule")
    public = schedule.get("public") if isinstance(schedule, dict) else None
    if not is_table(public):
        return ()
    sentence = (
        "how the noise is spread over the rounds was measured on the table "
        f"{Path(str(public)).name}, which is taken to be public: if it has records of the same "
        "people, what it reveals about them is not in the stated epsilon"
    )
    return (sentence,)


def _of_test_records(experiment: Experiment) -> tuple[str, ...]:
    """What a guarantee takes for granted of records that exact metrics are published of."""
    if not experiment.data.public_test:
        return ()
    sentence = (
        "metrics are exact, on test records that were declared to be public: what they reveal "
        "about people in these records is not in the stated epsilon"
    )
    return (sentence,)


def of_a_test_column(schema: Schema | None) -> tuple[str, ...]:
    """What a guarantee takes for granted of a column that sets test records apart."""
    if schema is None or schema.test_column is None:
        return ()
    sentence = (
        f"which records are tested on, and so how many are trained on, is told by the column "
        f"{schema.test_column!r} of the table, whose values are taken to be public"
    )
    return (sentence,)


def of_a_person_column(schema: Schema | None, experiment: Experiment) -> tuple[str, ...]:
    """What a guarantee for one record leaves open where the table says whose records they are."""
    if schema is None or schema.person is None or Unit(experiment.privacy.unit) is not Unit.RECORD:
        return ()
    sentence = (
        f"the column {schema.person!r} of the table says whose a record is, and the guarantee is "
        "for one record: somebody with k of them is protected as by about k times epsilon, at a "
        "larger delta. privacy.unit = 'person' protects all records of a person together"
    )
    return (sentence,)


def paid_sentence(plan: Plan, chosen: Mapping[str, Any]) -> str:
    """Which setting a tuning on private records chose, by which rule, and what it does not hide."""
    if not isinstance(plan, TuningPlan):
        raise TypeError("a setting that was paid for must have the plan of a tuning.")
    best = plan.best
    settings = ", ".join(f"{key} = {value}" for key, value in chosen.items())
    return (
        f"on the private records themselves, paid for in the stated epsilon: {settings} is the "
        f"best, by its noisy score, of a random number of trials, each with one of "
        f"{len(plan.trials)} settings, declared beforehand and drawn with replacement, and each "
        "mu-GDP with mu = "
        f"{rounded_up(best.base_mu, 6)}; their number is truncated negative binomial with eta = "
        f"{best.law.eta:g} and gamma = {best.law.gamma:.6g}, {best.law.mean:.4g} in the mean; "
        "neither that number nor anything of the other trials is published, and how long the run "
        "took, which tells something of it, is not hidden"
    )


def tuning_sentence(tuning: TuningSection | None) -> str:
    """Where the hyper-parameters came from, and who paid."""
    if tuning is None:
        return "none: all hyper-parameters were fixed beforehand"
    how = f"over {len(tuning.grid)} keys by fedpriv" if tuning.grid else "beforehand, as declared"
    return f"on the public data set {tuning.on!r}, {how}; no budget was spent"
