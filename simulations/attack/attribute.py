"""Attribute inference on an experiment: one feature of a record, by whoever knows all the others.

The feature takes one of two values, low or high. In every shadow model each record of the pool has
one of them by a coin of its own, with the share that high has in the table: so nothing else of the
record tells it, and whoever knows the marginals alone is right as often as the likelier value is
there. What an attack finds beyond that, it has from the record's being trained on. (What a model
tells of a feature because it goes with others, it tells of people whom it has never seen: no
protection of records hides that, or should.)

**From the model**: by the loss of the record with either value (model inversion; Fredrikson, Jha
and Ristenpart 2015), and by the likelihood ratio of their difference under shadow models with
either. Two runs that differ in the coin are replace-one neighbours, and the curve that a guarantee
allows follows. **From an answer**: of a linear model a party with this one record sends the
gradient of one value or the other, and the nearer one is guessed; raw, clipped, with the plan's
noise, and from the exact sum of all parties, of whose other records nothing is known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.audit.membership import Roc, likelihood_scores, roc
from fedpriv.simulations.attack.inversion import STAGES, listening
from fedpriv.simulations.attack.shadows import drawn_pool, for_records, trained, unprotected
from fedpriv.simulations.experiment.records.data import every_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from fedpriv.data import Dataset, Records
    from fedpriv.simulations.experiment.file import Experiment
    from fedpriv.simulations.run.prepare import Prepared

_SENT = 400  # answers that are looked at: chance moves an AUC of so many by 0.03


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Attribute:
    """The guesses of a feature.

    Attributes:
        feature: Its name.
        values: Low and high.
        share: Of high.
        baseline: The accuracy of whoever knows the marginals alone.
        records: Each model was trained on so many.
        models: Of each kind.
        curves: Of telling high from low, by protection and attack: ("none", "loss"), …
        accuracy: The same, for guesses with the marginals as prior.
        sent: By stage of an answer, the curve; or why none is shown.
    """

    feature: str
    values: tuple[float, float]
    share: float
    baseline: float
    records: int
    models: int
    curves: dict[tuple[str, str], Roc]
    accuracy: dict[tuple[str, str], float]
    sent: dict[str, Roc] | str


def infer_attribute(
    experiment: Experiment,
    own: Prepared,
    *,
    feature: str | None,
    records: int,
    models: int,
    seed: int = 0,
    on_model: Callable[[], None] = lambda: None,
) -> Attribute:
    """Tell a feature of ``records`` records from models, and from what parties send.

    Args:
        experiment: What to attack.
        own: The same, prepared.
        feature: By name; None for the one whose two values vary most.
        records: Every model is trained on so many.
        models: With noise, and as many without.
        seed: Of records, coins and noise.
        on_model: Told of every model.
    """
    rng = np.random.default_rng((seed, 2))
    whole = every_record(experiment)
    column = column_of(whole, feature)
    values, share = two_values(whole.train.X[:, column])
    pool = drawn_pool(whole, 2 * records, rng)
    pool = replace(pool, train=pool.train.take(rng.permutation(2 * records)[:records]))
    high = rng.random((models, records)) < share
    sides = _both(pool.train, column, values)
    prior = np.log(share / (1 - share))
    curves, accuracy = {}, {}
    everybody = np.ones(records, np.bool_)
    for kind, wanted in (("none", unprotected(experiment)), ("planned", experiment)):
        gains = np.empty((models, records))
        for number in range(models):
            each = replace(pool, train=_with(pool.train, column, np.choose(high[number], values)))
            shadow = trained(for_records(wanted, records, seed + number), each, everybody, rng)
            gains[number] = shadow.losses(sides[0]) - shadow.losses(sides[1])
            on_model()
        for attack, scores in (("loss", gains), ("lira", likelihood_scores(gains, high))):
            known = np.isfinite(scores)
            if (known & high).any() and (known & ~high).any():
                curves[kind, attack] = roc(scores[known & high], scores[known & ~high])
                guesses = scores[known] + prior > 0
                accuracy[kind, attack] = float((guesses == high[known]).mean())
    return Attribute(
        feature=whole.feature_names[column],
        values=values,
        share=share,
        baseline=max(share, 1 - share),
        records=records,
        models=models,
        curves=curves,
        accuracy=accuracy,
        sent=_told_by_answers(own, sides, seed),
    )


def column_of(dataset: Dataset, feature: str | None) -> int:
    """The column of a feature."""
    if feature is not None:
        if feature not in dataset.feature_names:
            raise ValueError(
                f"feature must be one of {', '.join(map(repr, dataset.feature_names[:20]))}, got "
                f"{feature!r}."
            )
        return dataset.feature_names.index(feature)
    X = dataset.train.X
    upper = _upper(X)
    spread = np.zeros(X.shape[1])
    for column in np.flatnonzero(upper.any(axis=0) & ~upper.all(axis=0)):
        (low, high), share = two_values(X[:, column])
        spread[column] = share * (1 - share) * (high - low) ** 2
    return int(np.argmax(spread))


def two_values(values: NDArray[np.float32]) -> tuple[tuple[float, float], float]:
    """Low and high, and the share of high: its two values, or the medians of two halves."""
    upper = _upper(values)
    if not upper.any() or upper.all():
        raise ValueError("feature must take two values or more in the table: it is constant.")
    low, high = (float(np.median(values[side])) for side in (~upper, upper))
    return (low, high), float(upper.mean())


def _upper(values: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Who is in the upper half of a column: above its median, or at it if nobody is above."""
    middle = np.median(values, axis=0)
    above = values > middle
    return np.asarray(np.where(above.any(axis=0), above, values >= middle))


def _both(records: Records, column: int, values: tuple[float, float]) -> tuple[Records, Records]:
    """The records with either value."""
    low, high = (_with(records, column, np.full(len(records), each)) for each in values)
    return low, high


def _with(records: Records, column: int, values: NDArray[np.float64]) -> Records:
    X = records.X.copy()
    X[:, column] = values
    return replace(records, X=X)


def _told_by_answers(
    own: Prepared, sides: tuple[Records, Records], seed: int
) -> dict[str, Roc] | str:
    """Curves of guessing the nearer gradient, by stage; or why they are not shown."""
    line = listening(own, seed=seed)
    if isinstance(line, str):
        return line
    path: Any = own.data.dataset.preprocessing
    low, high = (replace(side, X=path.bounded(side.X)) for side in sides)
    rounds, places = np.divmod(np.arange(_SENT), len(low))  # every record again, with new noise
    is_high = (rounds + places) % 2 == 0
    scores: dict[str, list[float]] = {stage: [] for stage in STAGES}
    for number, place in enumerate(places.tolist()):
        record = slice(place, place + 1)
        either = [line.heard(side.take(record), number=number) for side in (low, high)]
        sent = either[int(is_high[number])]
        for stage, seen in {**sent, "secure sum": line.everybody + sent["clipped"]}.items():
            clean = "raw" if stage == "raw" else "clipped"
            apart = either[1][clean] - either[0][clean]
            middle = (either[1][clean] + either[0][clean]) / 2
            length = float(np.linalg.norm(apart))
            scores[stage].append(float((seen - middle) @ apart) / length if length else 0.0)
    curves = {stage: np.array(found) for stage, found in scores.items()}
    return {stage: roc(found[is_high], found[~is_high]) for stage, found in curves.items()}
