"""Synthetic visits: persons with several records each, for studies of the person unit of privacy.

A person i has a vector u_i on the unit sphere and, at each visit, a record x = ρ·u_i + √(1−ρ²)·v
of unit norm, v fresh on the sphere orthogonal to u_i; the label of a visit is +1 with probability
σ(⟨θ°, x⟩ + b_i), where b_i ~ N(0, s²) is the person's own. So records of one person resemble each
other, as those of real persons do, and their gradients pull the same way in part.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from fedpriv._validate import require_count, require_non_negative, require_positive
from fedpriv.data.bounds import Bounds, enforce
from fedpriv.data.builtin.synthetic import unit_vectors
from fedpriv.data.dataset import Dataset, Records, signs
from fedpriv.data.errors import DataError
from fedpriv.data.persons import Persons


def visits(
    *,
    parties: int,
    persons: int,
    features: int,
    fewest: int,
    most: int,
    rng: np.random.Generator,
    likeness: float = 0.7,
    spread: float = 1.0,
    radius: float = 8.0,
) -> Dataset:
    """Draw persons, each at one party, and their visits; a quarter as many more are for testing.

    Args:
        parties: How many parties.
        persons: Training persons of each party.
        features: d, at least 2.
        fewest: Least number of visits of a person.
        most: Largest number; numbers are uniform between the two.
        rng: The source of randomness.
        likeness: ρ in [0, 1]: how much of a record is the person's own.
        spread: s, the standard deviation of a person's own tendency.
        radius: ‖θ°‖.
    """
    require_count(parties=parties, persons=persons, features=features, fewest=fewest, most=most)
    require_non_negative(likeness=likeness, spread=spread)
    require_positive(radius=radius)
    if features < 2 or fewest > most or likeness > 1:
        raise ValueError(
            "visits needs at least 2 features, fewest <= most and a likeness of at most 1, got "
            f"features = {features}, fewest = {fewest}, most = {most}, likeness = {likeness}."
        )
    truth = radius * unit_vectors(1, features, rng)[0]

    def draw(count: int, name: str) -> Records:
        everybody = parties * count
        own, tendency = unit_vectors(everybody, features, rng), rng.normal(0, spread, everybody)
        numbers = rng.integers(fewest, most + 1, everybody)
        who = np.repeat(np.arange(everybody), numbers)
        fresh = rng.standard_normal((len(who), features))
        fresh -= np.einsum("ij,ij->i", fresh, own[who])[:, None] * own[who]
        fresh /= np.linalg.norm(fresh, axis=1, keepdims=True)
        exact = likeness * own[who] + np.sqrt(1 - likeness**2) * fresh
        X = enforce(exact.astype(np.float32), Bounds(norm=1.0, intercept=0.0))
        y = signs(rng.random(len(who)) < expit(X @ truth + tendency[who]))
        # Visits come in the order of their dates, not one person after the other.
        dates = rng.permutation(len(who))
        person = Persons.named(who[dates], [f"{name}-{i}" for i in range(everybody)])
        return Records(X=X[dates], y=y[dates], party=who[dates] // count, person=person)

    return Dataset(
        name=f"visits:{fewest}" if fewest == most else f"visits:{fewest}-{most}",
        task="binary",
        train=draw(persons, "person"),
        test=draw(max(1, persons // 4), "tested"),
        feature_names=tuple(f"x{i}" for i in range(features)),
        max_norm=1.0,
        party_names=tuple(f"party-{j}" for j in range(parties)),
        classes=("-1", "+1"),
    )


def standard_visits(variant: str) -> Dataset:
    """10 parties of 400 persons with 10 features; ``variant`` is their number of visits."""
    low, _, high = (variant or "1-5").partition("-")
    numbers = [int(part) for part in (low, high or low) if part.isdecimal()]
    if len(numbers) != 2 or not 1 <= numbers[0] <= numbers[1]:
        raise DataError(
            "the variant of visits must be their number for a person, as in visits:5 or "
            f"visits:1-5; got {variant!r}."
        )
    fewest, most = numbers
    return visits(
        parties=10,
        persons=400,
        features=10,
        fewest=fewest,
        most=most,
        rng=np.random.default_rng(0),
    )
