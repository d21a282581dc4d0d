"""Registry of built-in data sets: each name means fixed records, a fixed scale and split."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedpriv._validate import require_choice
from fedpriv.data.builtin import archive, bundled
from fedpriv.data.builtin.chem97 import chem97
from fedpriv.data.builtin.synthetic import LOSSES, synthetic
from fedpriv.data.builtin.visits import standard_visits
from fedpriv.data.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedpriv.data.dataset import Dataset

DEFAULT = "chem97"

_BUNDLED = "pip install 'fedpriv[data]'"
_ARCHIVED = f"{archive.VARIABLE}, the folder of .npz files"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One name of the registry, for listings.

    Attributes:
        name: What `load` takes.
        summary: One line on the records, the label and the natural parties.
        needs: What must be installed or set to load it; empty if nothing.
        variants: How a variant is written after the name; empty if there is none.
        tested: The approximate share of records that its source set apart for testing: a published
            constant, not a count. 0 if it came without a split.
        load: The loader: (variant, root) to data set.
    """

    name: str
    summary: str
    needs: str
    load: Callable[[str, Path | None], Dataset]
    variants: str = ""
    tested: float = 0.0


_ENTRIES = (
    Entry(
        name="chem97",
        summary="31,022 pupils of 131 education authorities: chemistry grade above the median",
        needs="pip install 'fedpriv[demo]'",
        load=lambda _variant, _root: chem97(),
    ),
    Entry(
        name="breast_cancer",
        summary="569 biopsies: malignant or benign",
        needs=_BUNDLED,
        load=lambda _variant, _root: bundled.breast_cancer(),
    ),
    Entry(
        name="digits",
        summary="1,797 images of 8 × 8 pixels: the digit, or one of a pair",
        needs=_BUNDLED,
        load=lambda variant, _root: bundled.digits(variant),
        variants="digits:AvB, as in digits:3v5",
    ),
    Entry(
        name="synthetic",
        summary="20 parties of 200 records, 10 features, known optimum: logistic or squared loss",
        needs="",
        load=lambda variant, _root: _standard_synthetic(variant),
        variants="synthetic:logistic (the same as synthetic), synthetic:squared",
        tested=0.2,
    ),
    Entry(
        name="visits",
        summary="10 parties of 400 persons with 1 to 5 visits each, 10 features, synthetic",
        needs="",
        load=lambda variant, _root: standard_visits(variant),
        variants="visits:5 (for everybody), visits:1-8",
        tested=0.2,
    ),
    Entry(
        name="acs_income",
        summary="95,727 adults of 8 US states: income above 50,000 dollars",
        needs=_ARCHIVED,
        load=lambda _variant, root: archive.acs_income(root),
        tested=0.2,
    ),
    Entry(
        name="heart_disease",
        summary="740 patients of 4 hospitals: heart disease",
        needs=_ARCHIVED,
        load=lambda _variant, root: archive.heart_disease(root),
        tested=254 / 740,
    ),
    Entry(
        name="adult",
        summary="45,222 adults: income above 50,000 dollars; no parties, or 7 classes of work",
        needs=_ARCHIVED,
        load=archive.adult,
        variants="adult:workclass",
        tested=1 / 3,
    ),
    Entry(
        name="kddcup99",
        summary="70,000 network connections: normal or attack",
        needs=_ARCHIVED,
        load=lambda _variant, root: archive.kddcup99(root),
        tested=2 / 7,
    ),
    Entry(
        name="mnist",
        summary="70,000 images of 28 × 28 pixels: the digit, or one of a pair",
        needs=_ARCHIVED,
        load=archive.mnist,
        variants="mnist:AvB, as in mnist:3v5",
        tested=1 / 7,
    ),
)


def entries() -> tuple[Entry, ...]:
    """Everything that `load` knows, the default first."""
    return _ENTRIES


def names() -> tuple[str, ...]:
    """The names that `load` knows, without their variants."""
    return tuple(entry.name for entry in _ENTRIES)


def share_for_testing(name: str) -> float:
    """The approximate share of a data set's records that came as test records; 0 for none."""
    return _entry(name.partition(":")[0]).tested


def load(name: str = DEFAULT, *, root: str | Path | None = None) -> Dataset:
    """Load a data set by its name, such as ``chem97`` or ``mnist:3v5``.

    Args:
        name: One of `names`, with a variant after a colon where the data set has variants.
        root: The folder of ``.npz`` files; without it, the environment variable FEDPRIV_DATA.

    Raises:
        DataError: If something that the data set needs is missing; the message says what.
        ValueError: If the name is unknown; the message offers the nearest one.
    """
    base, colon, variant = name.partition(":")
    entry = _entry(base)
    if colon and not (variant and entry.variants):
        known = f"write {entry.variants}" if entry.variants else f"{base} has no variants"
        raise DataError(f"the variant of {name!r} is unknown: {known}.")
    return entry.load(variant, None if root is None else Path(root))


def _entry(base: str) -> Entry:
    require_choice(names(), name=base)
    return next(entry for entry in _ENTRIES if entry.name == base)


def _standard_synthetic(variant: str) -> Dataset:
    loss = variant or "logistic"
    require_choice(LOSSES, variant=loss)
    problem = synthetic(
        loss="squared" if loss == "squared" else "logistic",
        parties=20,
        records=200,
        features=10,
        rng=np.random.default_rng(0),
    )
    return problem.dataset
