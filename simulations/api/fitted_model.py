"""A fitted model: predictions for raw tables, from the file that a run released."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fedpriv.learning.classes import classes_of, classifies
from fedpriv.learning.losses import Logistic, Softmax
from fedpriv.learning.threads import one_thread
from fedpriv.simulations.run.model_file import ModelFile, read_model

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class FittedModel:
    """A fitted model, which predicts the label of every row of a raw table.

    A table is a DataFrame, an Arrow table, a mapping of columns, or the path of a CSV or Parquet
    file. It is clamped, filled and scaled by the schema of the training data, exactly as in
    training. An array is taken as already scaled features, in the order of `features`.

    Guarantee. Predictions are a function of the released model and of the rows of the table: they
    reveal no more about the training records than the release does. The rows of the table are not
    protected.

    >>> import fedpriv
    >>> study = {"data": {"name": "synthetic"}, "strategy": {"name": "output-perturbation"}}
    >>> model = fedpriv.run(study).model
    >>> model.predict({name: [0.1, 0.0] for name in model.columns}).shape
    (2,)
    >>> model.classes
    ('-1', '+1')
    """

    file: ModelFile

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a table must have; others are ignored."""
        return self.file.preprocessing.columns

    @property
    def features(self) -> tuple[str, ...]:
        """The scaled features, in the order of an array: categories have one per value."""
        return self.file.preprocessing.feature_names

    @property
    def classes(self) -> tuple[str, ...]:
        """What `predict` can answer, in the order of `predict_proba`; empty for a regression."""
        return self.file.classes

    def scores(self, table: Any) -> NDArray[np.float32]:
        """Scores of every row: (n,), or (n, classes) if there are more than two."""
        with one_thread():
            X = torch.from_numpy(self.file.preprocessing.features(table))
            scores = self.file.model.scores(torch.from_numpy(np.array(self.file.theta)), X)
        found: NDArray[np.float32] = scores.detach().numpy()
        return found

    def predict(self, table: Any) -> NDArray[Any]:
        """The label of every row: its class as the table names it, or a number in its own unit."""
        scores = self.scores(table)
        if classifies(self.file.loss):
            codes = classes_of(torch.from_numpy(scores), self.file.loss).numpy()
            places = (codes > 0).astype(np.int64) if self.file.task == "binary" else codes
            return np.array(self.classes).take(places)
        if self.file.label_range is None:
            return scores
        low, high = self.file.label_range
        numbers: NDArray[np.float64] = low + (scores.astype(np.float64) + 1) / 2 * (high - low)
        return numbers

    @property
    def has_probabilities(self) -> bool:
        """Whether scores are log-odds: of a logistic or softmax loss."""
        return isinstance(self.file.loss, Logistic | Softmax)

    def predict_proba(self, table: Any) -> NDArray[np.float64]:
        """The probability of every class, (n, classes); for logistic and softmax losses."""
        if not self.has_probabilities:
            raise ValueError(
                "predict_proba needs a logistic or softmax loss, got "
                f"{type(self.file.loss).__name__}: its scores are no probabilities. Use scores or "
                "predict."
            )
        scores = torch.from_numpy(self.scores(table)).to(torch.float64)
        if scores.ndim == 1:
            scores = torch.stack([torch.zeros_like(scores), scores], dim=1)
        found: NDArray[np.float64] = torch.softmax(scores, dim=1).numpy()
        return found

    def __repr__(self) -> str:
        model, kind = self.file.model, type(self.file.model).__name__
        what = f"classes {', '.join(self.classes)}" if self.classes else "regression"
        return f"FittedModel({kind}, {model.dimension} parameters; {what})"


def load_model(source: str | Path, *, own_code: bool = False) -> FittedModel:
    """Load a fitted model from the directory of a run, or from its model.npz.

    The file is read without pickle, and checked: an inconsistent file is refused.

    >>> import fedpriv, numpy as np
    >>> study = {"data": {"name": "synthetic"}, "strategy": {"name": "output-perturbation"}}
    >>> result = fedpriv.run(study)
    >>> model = fedpriv.load_model(result.directory)
    >>> bool((model.scores(np.eye(10)) == result.model.scores(np.eye(10))).all())
    True

    Args:
        source: The directory or the file.
        own_code: Whether to load a model that is defined by a user's own code, which runs the file
            of code that it names.
    """
    return FittedModel(file=read_model(source, own_code=own_code))
