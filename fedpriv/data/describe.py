"""Description of a data set, in the few numbers that a study reports."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from fedpriv.data.dataset import Dataset


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """The sizes of a data set; ``None`` where a number does not apply.

    These numbers are exact, hence not private: they are for public data, or for a party's own eyes.

    Attributes:
        name: The name of the data set.
        task: Its task.
        rows: All records, training and test.
        train: Training records.
        test: Test records.
        features: Columns of X.
        parties: Natural parties; 0 if there are none.
        smallest_party: Training records of the smallest natural party: the noise depends on it.
        positive_rate: Share of +1 among all records of a binary task.
    """

    name: str
    task: str
    rows: int
    train: int
    test: int
    features: int
    parties: int
    smallest_party: int | None
    positive_rate: float | None

    def to_dict(self) -> dict[str, Any]:
        """The description as JSON-ready values."""
        return asdict(self)


def describe(dataset: Dataset) -> Description:
    """Count the records, features, natural parties and positive labels of ``dataset``."""
    train, test = dataset.train, dataset.test
    smallest = None
    if train.party is not None:
        smallest = int(np.bincount(train.party, minlength=len(dataset.party_names)).min())
    rate = None
    if dataset.task == "binary":
        rate = float(np.mean(np.concatenate([train.y, test.y]) > 0))
    return Description(
        name=dataset.name,
        task=dataset.task,
        rows=len(train) + len(test),
        train=len(train),
        test=len(test),
        features=len(dataset.feature_names),
        parties=len(dataset.party_names),
        smallest_party=smallest,
        positive_rate=rate,
    )
