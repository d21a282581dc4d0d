"""The audit examines a release: what an observer, or the proof, would find wrong with it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import gamma

from fedpriv.federation.party.guard import QueryRefused
from fedpriv.federation.queries.kinds import RiskGradientQuery
from fedpriv.privacy.mechanisms import (
    GaussianMechanism,
    L1LaplaceMechanism,
    L2LaplaceMechanism,
    LaplaceMechanism,
)
from fedpriv.privacy.planning.objective.objective import ObjectiveMechanism
from tests.audit.laboratory import moved, public_part
from tests.audit.neighbours import neighbours, table
from tests.statistical import FALSE_FAILURE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.audit.laboratory import Laboratory, Released, Watch
    from tests.audit.neighbours import Case

STRESS = bool(os.environ.get("FEDPRIV_STRESS"))
"""Whether all neighbours are tried, and not a sample."""

ADAPTIVE = ("agd", "learned-protection")
"""Strategies whose plan follows from releases."""


def findings(case: Case, laboratory: Laboratory, folder: Path) -> list[str]:
    """What an observer, or the proof of a guarantee, would find wrong with a way to release."""
    rows = table(case.task)
    one = laboratory.run(case, rows, folder / "one")
    problems = [] if one.code else unlawful(one)
    pairs = list(neighbours(case, rows))
    if not STRESS:  # the first row and the extreme record, and one more by turns
        turn = 3 + sum(case.name.encode()) % (len(pairs) - 3)
        pairs = [pairs[0], pairs[2], pairs[turn]]
    for number, (name, others) in enumerate(pairs):
        other = laboratory.run(case, others, folder / f"other{number}", script=one)
        if (other.code, one.code) != (0, 0):
            if (other.code, other.said) != (one.code, one.said):
                problems.append(f"{name}: refused, or not, by what the table holds: {other.said}")
            continue
        problems += [f"{name}: {what}" for what in difference(case, one, other)]
    return problems


def difference(case: Case, one: Watch, other: Watch) -> list[str]:
    """What one record shows beside the noise, or by more than the noise hides."""
    adaptive = case.strategy["name"] in ADAPTIVE
    here, there = (public_part(watch, adaptive=adaptive) for watch in (one, other))
    problems = [
        f"{name} differs"
        for name in here.keys() | there.keys()
        if here.get(name) != there.get(name)
    ]
    if len(one.releases) != len(other.releases) or len(one.selections) != len(other.selections):
        return [*problems, "another number of releases"]
    for a, b in zip(one.releases, other.releases, strict=True):
        if a.mechanism != b.mechanism:
            problems.append("the noise depends on a record")
        elif not isinstance(a.mechanism, ObjectiveMechanism) and moved(a, b) > limit(a):
            problems.append(f"a sum moved by {moved(a, b):.4g}, more than {limit(a):.4g}")
    for c, d in zip(one.selections, other.selections, strict=True):
        apart = np.abs(c.scores - d.scores).max()
        if c.selection != d.selection or apart > c.selection.sensitivity * (1 + 1e-9):
            problems.append(f"a score moved by {apart:.4g}")
        if c.selection.monotone and np.ptp(np.sign(np.round(c.scores - d.scores, 9))) > 1:
            problems.append("scores moved both ways")
    return problems + exact_gradients(case, one, other)


def limit(release: Released) -> float:
    """The sensitivity that the noise of a release is for: in L2, of `LaplaceMechanism` in L1."""
    assert isinstance(
        release.mechanism,
        GaussianMechanism | L1LaplaceMechanism | L2LaplaceMechanism | LaplaceMechanism,
    )
    return release.mechanism.sensitivity * (1 + 1e-9)


def exact_gradients(case: Case, one: Watch, other: Watch) -> list[str]:
    """Objective perturbation rests on gradients: at every point a sum of them moves by 2G, or G.

    By p times that for a person at p parties.
    """
    if case.strategy["name"] not in ("objective-perturbation", "inference"):
        return []
    problems = []
    federations = (one.federation, other.federation)
    queries = [query for query in one.queries if isinstance(query, RiskGradientQuery)]
    for query in (*queries[:3], *queries[-2:]):
        try:
            here, there = (f.sum(query).value for f in federations if f is not None)
        except QueryRefused as refusal:
            problems.append(f"what is asked of one is refused by the other: {refusal}")
            continue
        apart = float(np.linalg.norm(here - there))
        most = float(case.changes)
        if apart > most * (1 + 1e-6):  # G = 1 for all losses that are allowed
            problems.append(f"a sum of exact gradients moved by {apart:.4g}, more than {most:g}")
    return problems


def unlawful(watch: Watch) -> list[str]:
    """Noise that is not drawn by the law that its mechanism states.

    Standardised, the sum over all draws of a run is gamma-distributed for each law.
    """
    problems = []
    for kind in (GaussianMechanism, L1LaplaceMechanism, L2LaplaceMechanism, LaplaceMechanism):
        total = shape = 0.0
        for release in watch.releases:
            law = release.mechanism
            if type(law) is not kind:
                continue
            noise = (release.value / release.step - release.total) * release.step
            match law:
                case GaussianMechanism():
                    total += float((noise**2).sum()) / law.stddev**2 / 2
                    shape += noise.size / 2
                case L1LaplaceMechanism() | LaplaceMechanism():
                    total += float(np.abs(noise).sum()) / law.scale
                    shape += noise.size
                case L2LaplaceMechanism() if law.dimension > 1:
                    total += float(np.linalg.norm(noise)) * law.epsilon / law.sensitivity
                    shape += law.dimension
        if shape and not lawful(total, shape):
            problems.append(f"{kind.name} noise is off: {total / shape:.3g} of what is stated")
    return problems


def lawful(total: float, shape: float) -> bool:
    low, high = gamma.ppf(FALSE_FAILURE / 2, shape), gamma.isf(FALSE_FAILURE / 2, shape)
    return bool(low <= total <= high)
