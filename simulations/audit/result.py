"""The result of an audit: bounds, the claim, and whether one contradicts the other."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedpriv import __version__
from fedpriv.audit.gaussian_shift import draws_for, normality, shift_lower_bound
from fedpriv.audit.threshold import operating_point
from fedpriv.privacy.gaussian import gdp_epsilon

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.simulations.audit.claim import Claim
    from fedpriv.simulations.audit.neighbours import Neighbours
    from fedpriv.simulations.run.prepare import Prepared

_NORMAL = 1e-3  # a smaller p-value, and the statistics are not taken for normal


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What an audit found; a lower bound, which proves a violation or nothing.

    Attributes:
        experiment: Its name.
        config_hash: Of the experiment: two with the same hash compute the same.
        fedpriv: The version that was audited.
        strategy: Its name.
        unit: Whose presence the claim hides.
        adjacency: Which tables it compares.
        claimed: (ε, δ), μ, and the limit that a test may show.
        neighbours: On which tables it was run.
        reach: The μ of these neighbours by the plan's own noise, which is all that any number of
            runs would show if the noise is as planned; None if it is not known.
        sees: What the adversary sees.
        runs: On each of the two.
        confidence: Of the lower bounds.
        seed: Of all random numbers.
        method: "student", which assumes normal statistics, or "threshold", which assumes nothing.
        mu: The lower bound on μ by that method.
        epsilon: The same as ε at the claim's δ: by the profile of a Gaussian release, if the method
            is "student"; else without any assumption.
        student: The lower bound on μ by Student's law.
        normal: A p-value of its assumption.
        threshold: That without assumptions, on half of the runs.
        problem: What was found without any statistics; empty if nothing was.
        passed: Whether nothing contradicts the claim.
        seconds: How long it took.
    """

    experiment: str
    config_hash: str
    fedpriv: str
    strategy: str
    unit: str
    adjacency: str
    claimed: Claim
    neighbours: str
    reach: float | None
    sees: str
    runs: int
    confidence: float
    seed: int
    method: Literal["student", "threshold"]
    mu: float
    epsilon: float
    student: float
    normal: float
    threshold: float
    problem: str
    passed: bool
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """As audit.json has it; what is not finite is null."""
        values = asdict(self)
        del values["claimed"]["points"]
        for part in (values, values["claimed"]):
            for key, value in part.items():
                if isinstance(value, float) and not np.isfinite(value):
                    part[key] = None
        return values


def judged(
    own: Prepared,
    pair: Neighbours,
    claim: Claim,
    found: NDArray[np.float64],
    *,
    reach: tuple[float, bool],
    sees: str,
    confidence: float,
    seed: int,
    seconds: float,
) -> Audit:
    """The statistics of all runs, (2, runs), against the claim."""
    first, second = found
    problem = pair.public_facts_differ
    student = shift_lower_bound(first, second, confidence=confidence)
    normal = normality(first, second)
    point = operating_point(first, second, confidence=confidence)
    by_student = claim.gaussian and normal >= _NORMAL
    mu = student if by_student else point.mu
    direct = point.epsilon(claim.delta)
    epsilon = _as_epsilon(mu, claim.delta) if by_student else direct
    allowed = claim.allows(
        true_positives=point.true_positives, false_positives=point.false_positives
    )
    broken = mu > claim.limit if by_student else not allowed
    experiment = own.experiment
    return Audit(
        experiment=experiment.name,
        config_hash=experiment.config_hash,
        fedpriv=__version__,
        strategy=own.info.name,
        unit=experiment.privacy.unit,
        adjacency=experiment.privacy.adjacency,
        claimed=claim,
        neighbours=pair.name,
        reach=reach[0] if reach[1] else None,
        sees=sees,
        runs=first.size,
        confidence=confidence,
        seed=seed,
        method="student" if by_student else "threshold",
        mu=mu,
        epsilon=epsilon,
        student=student,
        normal=normal,
        threshold=point.mu,
        problem=problem,
        passed=not (broken or problem),
        seconds=seconds,
    )


def _as_epsilon(mu: float, delta: float) -> float:
    """ε at δ of a μ-GDP release."""
    if mu == inf:
        return inf
    return gdp_epsilon(mu=mu, delta=delta) if mu > 0 else 0.0


def in_words(audit: Audit) -> list[str]:
    """What an audit found, for people."""
    claim = audit.claimed
    mu = "" if claim.mu is None else f" (μ = {claim.mu:.3g})"
    shown = "" if claim.mu is None else f" (μ ≥ {audit.mu:.3g}, {audit.mu / claim.mu:.0%} of it)"
    percent = f"{100 * audit.confidence:g} %"
    reach = "" if audit.reach is None else _REACH.format(audit.reach)
    measured = f"ε ≥ {audit.epsilon:.3g}{shown} with {percent} confidence, 2 × {audit.runs} runs"
    lines = [
        f"claimed ε = {claim.epsilon:.4g} at δ = {claim.delta:g}{mu}; measured at least {measured}",
        f"{audit.strategy}; unit: {audit.unit}; {audit.adjacency}; seen: {audit.sees}",
        f"neighbours: {audit.neighbours}{reach}",
        f"method: {_METHODS[audit.method]}",
    ]
    if audit.problem:
        lines.append(f"PROBLEM: {audit.problem}.")
    if not audit.passed:
        lines.append("VIOLATED: the runs contradict the claim.")
        return lines
    lines.append(
        "Nothing contradicts the claim. That proves nothing more: a bound below it may be a weak "
        "audit as well as a strong guarantee."
    )
    if claim.mu is not None and audit.mu < 0.8 * claim.mu:
        wanted = draws_for(claim.mu, confidence=audit.confidence)
        if wanted > audit.runs:
            lines.append(f"To show 80 % of μ = {claim.mu:.3g} takes about --runs {wanted}.")
    return lines


_REACH = "; by the plan's noise they are μ = {:.3g} apart"
_METHODS = {
    "student": "Student's exact bound, for the normal statistics of Gaussian noise",
    "threshold": "a threshold chosen on half of the runs, Clopper-Pearson limits on the others",
}
