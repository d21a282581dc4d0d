"""The result of an audit: bounds, the claim, and whether one contradicts the other."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedpriv import __version__
from fedpriv.audit.gaussian_shift import normality, pairs_for, shift_lower_bound
from fedpriv.audit.one_run import (
    contradicts,
    epsilon_lower_bound,
    gaussian_inverse,
    mu_lower_bound,
    points_inverse,
)
from fedpriv.audit.threshold import operating_point
from fedpriv.privacy.gaussian import gdp_epsilon
from fedpriv.privacy.rounding import rounded_down, rounded_up

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.simulations.audit.claim import Claim
    from fedpriv.simulations.audit.neighbours import Neighbours
    from fedpriv.simulations.run.prepare import Prepared

_NORMAL = 1e-3  # a smaller p-value, and the statistics are not taken for normal


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The result of an audit: a lower bound, which proves a violation or nothing.

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
        runs: On each of the two, in pairs with equal noise; one, with many canaries.
        confidence: Of the lower bounds.
        seed: Of all random numbers.
        method: "shift", which assumes normal statistics, "threshold", which assumes nothing, or
            "one-run", which assumes nothing either.
        mu: The lower bound on μ by that method.
        epsilon: The same as ε at the claim's δ: by the profile of a Gaussian release, if the method
            is "shift", or "one-run" of a plan that states μ; else without any assumption.
        shift: The lower bound on μ by the shift of normal statistics.
        normal: A p-value of its assumption.
        threshold: That without assumptions, on half of the runs.
        canaries: In one run, how many.
        guesses: How many of their coins were guessed, fixed before the run.
        right: How many guesses were right.
        noise: How many noise values were tested against the law of the plan, on each of the two;
            None where that cannot be done.
        problem: What else is wrong: public facts that differ, noise of another law than the plan's;
            empty if nothing is.
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
    method: Literal["shift", "threshold", "one-run"]
    mu: float
    epsilon: float
    shift: float | None = None
    normal: float | None = None
    threshold: float | None = None
    canaries: int | None = None
    guesses: int | None = None
    right: int | None = None
    noise: int | None = None
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
    noise: tuple[int | None, str],
    confidence: float,
    seed: int,
    seconds: float,
) -> Audit:
    """The statistics of all runs, (2, runs), against the claim, and what was found of the noise."""
    first, second = found
    problem = pair.public_facts_differ or _of_noise(noise[1])
    shift = shift_lower_bound(first, second, confidence=confidence)
    normal = normality(first, second)
    point = operating_point(first, second, confidence=confidence)
    by_shift = claim.gaussian and normal >= _NORMAL
    mu = shift if by_shift else point.mu
    direct = point.epsilon(claim.delta)
    epsilon = _as_epsilon(mu, claim.delta) if by_shift else direct
    allowed = claim.allows(
        true_positives=point.true_positives, false_positives=point.false_positives
    )
    broken = mu > claim.limit if by_shift else not allowed
    return Audit(
        **_facts(own, claim, broken=broken, problem=problem),
        neighbours=pair.name,
        reach=reach[0] if reach[1] else None,
        sees=sees,
        runs=first.size,
        confidence=confidence,
        seed=seed,
        method="shift" if by_shift else "threshold",
        mu=mu,
        epsilon=epsilon,
        shift=shift,
        normal=normal,
        threshold=point.mu,
        noise=noise[0],
        seconds=seconds,
    )


def judged_in_one_run(
    own: Prepared,
    claim: Claim,
    *,
    canaries: int,
    guesses: int,
    right: int,
    reach: float | None,
    noise: tuple[int | None, str],
    confidence: float,
    seed: int,
    seconds: float,
) -> Audit:
    """The right guesses of one run against the claim, and what was found of the noise."""
    mu = mu_lower_bound(right, guesses, canaries, confidence=confidence)
    curve = gaussian_inverse(claim.limit) if claim.exact else points_inverse(claim.points)
    broken = contradicts(right, guesses, canaries, inverse=curve, failure=1 - confidence)
    return Audit(
        **_facts(own, claim, broken=broken, problem=_of_noise(noise[1])),
        neighbours=f"{canaries} planted gradients",
        reach=reach,
        sees="every release",
        runs=1,
        confidence=confidence,
        seed=seed,
        method="one-run",
        mu=mu,
        epsilon=(
            _as_epsilon(mu, claim.delta)
            if claim.exact
            else epsilon_lower_bound(
                right, guesses, canaries, delta=claim.delta, confidence=confidence
            )
        ),
        canaries=canaries,
        guesses=guesses,
        right=right,
        noise=noise[0],
        seconds=seconds,
    )


def _of_noise(fault: str) -> str:
    """What is wrong with the noise, as the problem of an audit."""
    return f"the noise is not that of the plan: {fault}" if fault else ""


def _facts(own: Prepared, claim: Claim, *, broken: bool, problem: str) -> dict[str, Any]:
    """What every audit states of its experiment, and whether it passed."""
    experiment = own.experiment
    return {
        "experiment": experiment.name,
        "config_hash": experiment.config_hash,
        "fedpriv": __version__,
        "strategy": own.info.name,
        "unit": experiment.privacy.unit,
        "adjacency": experiment.privacy.adjacency,
        "claimed": claim,
        "problem": problem,
        "passed": not (broken or problem),
    }


def _as_epsilon(mu: float, delta: float) -> float:
    """ε at δ of a μ-GDP release."""
    if mu == inf:
        return inf
    return gdp_epsilon(mu=mu, delta=delta) if mu > 0 else 0.0


def in_words(audit: Audit) -> list[str]:
    """The result of an audit, in words."""
    claim = audit.claimed
    mu = "" if claim.mu is None else f" (μ = {rounded_up(claim.mu, 3)})"
    least = rounded_down(audit.mu, 3)
    shown = "" if claim.mu is None else f" (μ ≥ {least}, {audit.mu / claim.mu:.0%} of it)"
    percent = f"{100 * audit.confidence:g} %"
    reach = "" if audit.reach is None else _REACH.format(audit.reach)
    runs = f"2 × {audit.runs} runs"
    if audit.method == "one-run":
        runs = f"1 run, {audit.right} of {audit.guesses} guesses right ({audit.canaries} canaries)"
    measured = f"ε ≥ {rounded_down(audit.epsilon, 3)}{shown} with {percent} confidence, {runs}"
    claimed = f"claimed ε = {rounded_up(claim.epsilon)} at δ = {claim.delta:g}{mu}"
    lines = [
        f"{claimed}; measured at least {measured}",
        f"{audit.strategy}; unit: {audit.unit}; {audit.adjacency}; seen: {audit.sees}",
        f"neighbours: {audit.neighbours}{reach}",
        f"method: {_METHODS[audit.method]}",
    ]
    if audit.noise is not None and not audit.problem:
        lines.append(f"noise: {audit.noise:,} numbers follow the law of the plan")
    if audit.problem:
        lines.append(f"PROBLEM: {audit.problem}.")
    if not audit.passed:
        lines.append("VIOLATED: the runs contradict the claim.")
        return lines
    lines.append(
        "Nothing contradicts the claim. That proves nothing more: a bound below it may be a weak "
        "audit as well as a strong guarantee."
    )
    if wanted := _more_runs(audit):
        lines.append(f"Nineteen audits in twenty with --runs {wanted} show {_ENOUGH:.0%} of μ.")
    return lines


def _more_runs(audit: Audit) -> int | None:
    """How many runs would show enough of μ; None if these do, or if no number of runs would."""
    mu, reach = audit.claimed.mu, audit.reach
    if mu is None or reach is None or audit.method != "shift" or audit.mu >= _ENOUGH * mu:
        return None
    if reach <= _ENOUGH * mu:
        return None
    wanted = pairs_for(_ENOUGH * mu / reach, confidence=audit.confidence)
    return wanted if wanted is not None and audit.runs < wanted <= _MOST_RUNS else None


_ENOUGH = 0.8
_MOST_RUNS = 100_000
_REACH = "; by the plan's noise they are μ = {:.3g} apart"
_METHODS = {
    "shift": "the shift of normal statistics, from pairs of runs with equal noise",
    "threshold": "a threshold chosen on half of the runs, Clopper-Pearson limits on the others",
    "one-run": "right guesses of one run, whose number is fixed by the claim; nothing is assumed",
}
