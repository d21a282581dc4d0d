"""Membership inference: was this record among those that a model was trained on?

An attack gives every record a score, large where it looks like a member, and a threshold on it
decides. Its power is the ROC curve: true against false positives, over all thresholds.

- **Loss threshold** (Yeom, Giacomelli, Fredrikson and Jha 2018): members have a smaller loss. One
  number a record; it shows how much a model fits its own records better than others.
- **LiRA** (Carlini, Chien, Nasr, Song, Terzis and Tramèr 2022, online): the loss of one record
  under models that were trained with it and without, as two normal laws; the score is their
  likelihood ratio. It needs shadow models, and corrects for how easy or hard each record is.

What a guarantee says: the model of a μ-GDP run has TPR ≤ Φ(Φ⁻¹(FPR) + μ) for every record and every
attack, and so on average over records, since that curve is concave.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LEAST_SPREAD = 1e-3
_LEAST_MODELS = 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Roc:
    """A ROC curve: the rates at every threshold, from (0, 0) to (1, 1).

    Attributes:
        false_positives: Increasing.
        true_positives: At each of them.
    """

    false_positives: NDArray[np.float64]
    true_positives: NDArray[np.float64]

    @property
    def area(self) -> float:
        """AUC: a half is guessing."""
        return float(np.trapezoid(self.true_positives, self.false_positives))

    @property
    def advantage(self) -> float:
        """The most by which true positives exceed false ones."""
        return float(np.max(self.true_positives - self.false_positives))

    def at(self, rate: float) -> float:
        """True positives at a false-positive rate, at most."""
        return float(self.true_positives[self.false_positives <= rate].max(initial=0.0))


def roc(members: NDArray[np.float64], others: NDArray[np.float64]) -> Roc:
    """The curve of a score, large for members. Ties are decided together.

    >>> import numpy as np
    >>> roc(np.array([3.0, 2.0]), np.array([1.0, 2.0])).area
    0.875
    """
    if not (members.size and others.size):
        raise ValueError(
            f"members and others must not be empty, got {members.size} and {others.size}."
        )
    levels = np.unique(np.concatenate([members, others]))[::-1]
    true, false = (
        (each.size - np.searchsorted(np.sort(each), levels)) / each.size
        for each in (members, others)
    )
    start = np.zeros(1)
    return Roc(
        false_positives=np.concatenate([start, false]),
        true_positives=np.concatenate([start, true]),
    )


def confidence_scores(losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """ln(p/(1 - p)) of the probability p = e^-loss of the right answer: normal in shape.

    Carlini et al. 2022, §V. For losses that are no logarithms it is still increasing in -loss.
    """
    losses = np.clip(losses, 1e-12, 700.0)
    return np.asarray(-losses - np.log(-np.expm1(-losses)))


def lira_scores(losses: NDArray[np.float64], members: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The likelihood-ratio score of every record under every model, the others being its shadows.

    Args:
        losses: (models, records).
        members: (models, records): which records each model was trained on.

    Returns:
        (models, records): ln of the density with the record over that without; NaN where fewer than
        two other models are on either side. One variance a side, over all records, as for few
        shadows.
    """
    return likelihood_scores(confidence_scores(losses), members)


def likelihood_scores(
    scores: NDArray[np.float64], inside: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """`lira_scores` for scores that are normal by themselves, and any two sides of a record."""
    result = np.full(scores.shape, np.nan)
    for model in range(len(scores)):
        rest = np.arange(len(scores)) != model
        shown, there = scores[rest], inside[rest]
        means, spreads = [], []
        for side in (there, ~there):
            count = side.sum(axis=0)
            mean = np.where(side, shown, 0).sum(axis=0) / np.maximum(count, 1)
            errors = np.where(side, shown - mean, 0.0)
            freedom = max(1, int(np.maximum(count - 1, 0).sum()))
            spreads.append(max(_LEAST_SPREAD, float(np.sqrt((errors**2).sum() / freedom))))
            means.append(np.where(count >= _LEAST_MODELS, mean, np.nan))
        logs = [
            -(((scores[model] - mean) / spread) ** 2) / 2 - np.log(spread)
            for mean, spread in zip(means, spreads, strict=True)
        ]
        result[model] = logs[0] - logs[1]
    return result
