"""Attacks on an experiment, with and without its protection, against what its guarantee allows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv import __version__
from fedpriv._validate import require_count
from fedpriv.audit.membership import Roc
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.rounding import rounded_up
from fedpriv.privacy.tradeoff import gaussian_tradeoff_curve, tradeoff_curve
from fedpriv.privacy.unit import Unit
from fedpriv.simulations.attack.attribute import Attribute, infer_attribute
from fedpriv.simulations.attack.inversion import STAGES, Inversion, invert
from fedpriv.simulations.attack.membership import Membership, infer_membership
from fedpriv.simulations.audit.audit import require_auditable
from fedpriv.simulations.experiment.catalogue import checked
from fedpriv.simulations.public.tuning import tuned
from fedpriv.simulations.run.files import PRIVATE
from fedpriv.simulations.run.prepare import check, prepare

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from fedpriv.privacy.planning.plan import Plan
    from fedpriv.simulations.experiment.file import Experiment

RECORDS, MODELS = 100, 16
_RATES = (0.001, 0.01, 0.1)
_ALARMS = np.concatenate([[0.0], np.geomspace(1e-4, 1, 200)])
_KINDS = {"none": "without noise", "planned": "with the noise of the plan"}
_ATTACKS = {"loss": "loss threshold", "lira": "LiRA"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Attacks:
    """What the attacks on an experiment showed.

    Attributes:
        experiment: Its name.
        config_hash: Of the experiment.
        epsilon: Of its plan.
        delta: The same.
        unit: Of privacy.
        membership: What membership inference showed.
        bound: The curve that the guarantee allows for one record; None for other units, of which
            a record more or less may be more than one step between neighbours.
        inversion: What gradient inversion showed, or why it was not tried.
        attribute: What attribute inference showed.
        attribute_bound: The curve that the guarantee allows for it, as `bound`.
    """

    experiment: str
    config_hash: str
    epsilon: float
    delta: float
    unit: str
    membership: Membership
    bound: Roc | None
    inversion: Inversion | str
    attribute: Attribute
    attribute_bound: Roc | None

    def to_dict(self) -> dict[str, Any]:
        """As attacks.json has it."""
        found = self.membership
        read = self.inversion
        return {
            "experiment": self.experiment,
            "config_hash": self.config_hash,
            "fedpriv": __version__,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "unit": self.unit,
            "membership": {
                "records": found.records,
                "models": found.models,
                "accuracy": found.accuracy,
                "bound": None if self.bound is None else _numbers(self.bound),
                **{
                    f"{attack}, {_KINDS[kind]}": _numbers(curve)
                    for (kind, attack), curve in found.curves.items()
                },
            },
            "inversion": (
                {"not shown": read}
                if isinstance(read, str)
                else {stage: [round(float(x), 6) for x in read.likeness[stage]] for stage in STAGES}
            ),
            "attribute": self._attribute(),
        }

    def _attribute(self) -> dict[str, Any]:
        told = self.attribute
        return {
            "feature": told.feature,
            "values": list(told.values),
            "share": round(told.share, 6),
            "baseline_accuracy": round(told.baseline, 6),
            "records": told.records,
            "models": told.models,
            "bound": None if self.attribute_bound is None else _numbers(self.attribute_bound),
            **{
                f"{attack}, {_KINDS[kind]}": {
                    **_numbers(curve),
                    "accuracy": round(told.accuracy[kind, attack], 6),
                }
                for (kind, attack), curve in told.curves.items()
            },
            "answers": (
                {"not shown": told.sent}
                if isinstance(told.sent, str)
                else {stage: _numbers(curve) for stage, curve in told.sent.items()}
            ),
        }


def attack_experiment(
    experiment: Experiment,
    *,
    records: int = RECORDS,
    models: int = MODELS,
    feature: str | None = None,
    seed: int = 0,
    on_model: Callable[[int, int], None] = lambda _done, _total: None,
) -> Attacks:
    """Attack an experiment in a simulation: membership of its records, and their features.

    Args:
        experiment: What to attack. Its strategy must have a guarantee: without noise it is run
            anyway, to compare.
        records: Every model is trained on so many: fewer records are remembered better.
        models: Trained with noise, and as many without, for either attack on models.
        feature: Which is told; None for the one whose two values vary most.
        seed: Of members, values and noise.
        on_model: Told of every model, and of how many there are.
    """
    require_count(records=records, models=models)
    require_auditable(checked(experiment), what="an attack")
    if experiment.paid_tuning:
        raise ValueError(
            "an attack needs settings that are fixed, got tuning.on = 'private': attack the "
            "strategy with the setting that the tuning chose."
        )
    wanted = tuned(experiment)
    own = prepare(wanted)
    strategy = check(own)
    if strategy is None or strategy.plan is None:
        raise ValueError(f"an attack needs a strategy with a guarantee, got {own.info.name!r}.")
    plan = strategy.plan
    done = 0

    def count(*_facts: int) -> None:
        nonlocal done
        done += 1
        on_model(done, 4 * models)

    record = plan.unit is Unit.RECORD
    return Attacks(
        experiment=wanted.name,
        config_hash=own.experiment.config_hash,
        epsilon=plan.epsilon,
        delta=plan.budget.delta,
        unit=own.experiment.privacy.unit,
        membership=infer_membership(
            wanted, records=records, models=models, seed=seed, on_model=count
        ),
        bound=allowed(plan) if record else None,
        inversion=invert(own, seed=seed),
        attribute=infer_attribute(
            wanted,
            own,
            feature=feature,
            records=records,
            models=models,
            seed=seed,
            on_model=count,
        ),
        attribute_bound=allowed_of_a_value(plan) if record else None,
    )


def allowed(plan: Plan, *, steps: int = 1) -> Roc:
    """The ROC curve that no attack on a run of this plan can exceed, so many neighbours away."""
    epsilon, delta = plan.epsilon, plan.budget.delta
    grown = delta * sum(exp(step * epsilon) for step in range(steps))
    missed = (
        tradeoff_curve(_ALARMS, epsilon=steps * epsilon, delta=min(1.0, grown))
        if plan.gdp_mu is None
        else gaussian_tradeoff_curve(_ALARMS, mu=steps * plan.gdp_mu)
    )
    return Roc(false_positives=_ALARMS, true_positives=1 - missed)


def allowed_of_a_value(plan: Plan) -> Roc:
    """The curve for another value in a record: one step if records are exchanged, else two."""
    return allowed(plan, steps=1 if plan.adjacency is Adjacency.REPLACE_ONE else 2)


def require_no_release(source: str) -> None:
    """Refuse the directory, or the files, of a release: attacks are for simulations."""
    path = Path(source)
    folder = path if path.is_dir() else path.parent
    identity = folder / PRIVATE / "run.json"
    if identity.exists() and json.loads(identity.read_text(encoding="utf-8")).get("release"):
        raise ValueError(
            f"{source!r} is of a release, and attacks are for simulations: they read the records "
            "of the table without paying. Attack the experiment, on records that are yours to try."
        )


def in_words(found: Attacks) -> list[str]:
    """What the attacks showed, for people."""
    shown = found.membership
    models = f"{shown.models} models of {shown.records} records each"
    epsilon = rounded_up(found.epsilon)
    lines = [
        f"membership inference: {models}, with noise for ε = {epsilon} and without",
        f"{'':46}{'AUC':>8}{'advantage':>11}{'TPR at 1 % FPR':>16}",
    ]
    for (kind, attack), curve in shown.curves.items():
        lines.append(_row(f"  {_ATTACKS[attack]}, {_KINDS[kind]}", curve))
    if found.bound is not None:
        lines.append(_row("  what the guarantee allows at most", found.bound))
    if isinstance(found.inversion, str):
        lines.append(f"{found.inversion}.")
    else:
        lines.append(
            "gradient inversion: cosine between what was read and the record (1 is all of it)"
        )
        for stage in STAGES:
            values: NDArray[np.float64] = found.inversion.likeness[stage]
            lines.append(f"  {_STAGES[stage]:44}{np.median(values):8.3f}")
    return [*lines, *_told(found)]


def _told(found: Attacks) -> list[str]:
    """What attribute inference showed."""
    told = found.attribute
    low, high = told.values
    lines = [
        (
            f"attribute inference: {told.feature!r}, {low:.4g} or {high:.4g} by a coin; whoever "
            f"knows the marginals alone is right in {told.baseline:.1%}"
        ),
        f"{'':46}{'AUC':>8}{'advantage':>11}{'accuracy':>16}",
    ]
    for (kind, attack), curve in told.curves.items():
        name = f"  {_ATTACKS[attack]}, {_KINDS[kind]}".replace("loss threshold", "loss of either")
        right = told.accuracy[kind, attack]
        lines.append(f"{name:46}{curve.area:8.3f}{curve.advantage:11.3f}{right:16.3f}")
    if (bound := found.attribute_bound) is not None:
        name = "  what the guarantee allows at most"
        lines.append(f"{name:46}{bound.area:8.3f}{bound.advantage:11.3f}")
    if not isinstance(told.sent, str):
        lines += [f"  {_STAGES[stage]:44}{told.sent[stage].area:8.3f}" for stage in STAGES]
    return lines


def _row(name: str, curve: Roc) -> str:
    return f"{name:46}{curve.area:8.3f}{curve.advantage:11.3f}{curve.at(0.01):16.3f}"


def _numbers(curve: Roc) -> dict[str, Any]:
    return {
        "auc": round(curve.area, 6),
        "advantage": round(curve.advantage, 6),
        **{f"tpr_at_{rate:g}": round(curve.at(rate), 6) for rate in _RATES},
    }


_STAGES = {
    "raw": "one record's gradient",
    "clipped": "the same, clipped",
    "noisy": "the same, clipped, with the plan's noise",
    "secure sum": "the exact sum over all parties",
}
