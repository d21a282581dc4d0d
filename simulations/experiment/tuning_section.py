"""The table ``tuning`` of an experiment file: where hyper-parameters come from, and who pays."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from fedpriv.simulations.experiment.sections import Count, Positive, Section, Sequence

PRIVATE = "private"
"""In the place of a public data set: the records of the experiment itself, for a price."""

_EXPECTED_TRIALS = 10.0
_PAID = ("expected_trials", "eta", "score", "score_share", "clip", "trials")


class TuningSection(Section):
    """Where hyper-parameters come from: public data, or the private records, which then are paid.

    Attributes:
        on: a built-in, public data set; or "private", by trials that the budget pays for.
        grid: dotted keys with the values to try; empty if it was done beforehand, on public data.
        seeds: runs of each setting, on public data.
        expected_trials: on private records, the mean of the number of trials, which is random (10).
        eta: η of its law: 0 is logarithmic, 1 geometric (0).
        score: what trials are compared by: "accuracy" or "loss" (accuracy where there are classes
            of records).
        score_share: the share of a trial's μ² that pays for its score (0.1).
        clip: of a score by loss, the bound on the loss of one record, or person (1).
        trials: refused: a fixed number of trials would have another price.
    """

    on: str
    grid: dict[str, Annotated[tuple[Any, ...], Sequence]] = Field(default_factory=dict)
    seeds: Count = 1
    expected_trials: Annotated[float, Field(gt=1)] | None = None
    eta: Annotated[float, Field(gt=-1)] | None = None
    score: Literal["accuracy", "loss"] | None = None
    score_share: Annotated[float, Field(gt=0, lt=1)] | None = None
    clip: Positive | None = None
    trials: Any = None

    @model_validator(mode="after")
    def _of_its_kind(self) -> Self:
        if self.trials is not None:
            raise ValueError(
                f"trials must not be given, got {self.trials!r}: whoever keeps the best of a fixed "
                "number of trials pays for all of them, as much as K trials that are all "
                "published, √K times μ. The number is drawn at random: state expected_trials."
            )
        given = [key for key in _PAID if getattr(self, key) is not None]
        if not self.paid and given:
            raise ValueError(
                f"{given[0]} is for on = {PRIVATE!r}, got on = {self.on!r}: on public data every "
                "setting of the grid is tried, for nothing."
            )
        if self.paid and not self.grid:
            raise ValueError(f"grid must offer settings with on = {PRIVATE!r}, got none.")
        if self.paid and self.seeds != 1:
            raise ValueError(
                f"seeds must be 1 with on = {PRIVATE!r}, got {self.seeds}: a setting is tried as "
                "often as it is drawn."
            )
        return self

    @property
    def paid(self) -> bool:
        """Whether settings are tried on the private records."""
        return self.on == PRIVATE

    @property
    def mean_trials(self) -> float:
        """E K, with its default."""
        return self.expected_trials or _EXPECTED_TRIALS
