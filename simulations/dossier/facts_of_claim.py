"""Facts of a claim, in sentences: unit, epsilon, delta, sensitivity, mechanism, composition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.mechanisms.shares import NoiseShare
from fedpriv.privacy.planning.plan import sampler_of
from fedpriv.privacy.planning.written_plan import least_rate_of, releases_of
from fedpriv.privacy.rounding import rounded_up
from fedpriv.privacy.statement.statement import SIMULATED, large_delta
from fedpriv.privacy.unit import Unit
from fedpriv.simulations.report.curves import begun
from fedpriv.simulations.report.guarantee import meaning

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedpriv.simulations.dossier.evidence import Evidence

_MOST = 6  # kinds of noise told one by one; plan.json has them all
_BOUNDS = ("sensitivity", "l1_sensitivity", "l2_sensitivity")
_SCALES = ("stddev", "epsilon", "delta", "variance", "extra_regulariser")
_OF_SHARES = ("parameter",)


def unit(evidence: Evidence) -> str:
    """Whose data is hidden, under which adjacency."""
    told = evidence.statement["guarantee"]
    adjacency = told["adjacency"]
    return f"{begun(Unit(told['unit']).words)}. Neighbours: {told['neighbours']} ({adjacency})."


def person(evidence: Evidence) -> str:
    """What (ε, δ) is for a person."""
    told, run = evidence.statement["guarantee"], evidence.statement["run"]
    loss = told["per_person"]
    pair = f"(ε, δ) = ({rounded_up(loss['epsilon'])}, {rounded_up(loss['delta'])})"
    if told["unit"] == Unit.PERSON:
        used = "any number" if run["person_records"] is None else f"at most {run['person_records']}"
        return (
            f"{pair}: a person is the unit. Declared: {used} of a person's records are used at one "
            f"party, and a person is at no more than {run['person_parties']} of them."
        )
    most = told["records_per_person"]
    step = "as for a record" if most == 1 else "by group privacy"
    count = "one record" if most == 1 else f"{most} records"
    return f"{pair}, {step}, if nobody has more than {count}. That is not checked."


def variant(evidence: Evidence) -> str:
    """Pure or approximate, and its other forms."""
    told = evidence.statement["guarantee"]
    forms = ["(ε, δ)-differential privacy" if told["delta"] else "pure ε-differential privacy"]
    if told["gdp_mu"] is not None:
        forms.append(f"μ-GDP with μ = {rounded_up(told['gdp_mu'], 6)}")
    if told["zcdp_rho"] is not None:
        forms.append(f"ρ-zCDP with ρ = {rounded_up(told['zcdp_rho'], 6)}")
    return f"{begun('; also '.join(forms))}."


def epsilon(evidence: Evidence) -> str:
    """ε and its meaning; of a simulation, that it is nothing yet."""
    told = evidence.statement["guarantee"]
    words = meaning(
        told["epsilon"],
        delta=told["delta"],
        unit=Unit(told["unit"]),
        adjacency=Adjacency(told["adjacency"]),
        proved=told["attack_advantage"],
    )
    if evidence.simulated:
        words = f"{words} {SIMULATED}: a release with these settings would guarantee it."
    return f"ε ≤ {rounded_up(told['epsilon'])}. {words}"


def delta(evidence: Evidence) -> str:
    """δ against 1/N."""
    told = evidence.statement["guarantee"]
    if not told["delta"]:
        return "δ = 0: the bound holds without exception."
    share = rounded_up(told["delta_times_units"], 2)
    stated = f"δ ≤ {rounded_up(told['delta'])}, which is {share} of 1/N"
    whole = told["unit"] == Unit.PARTY
    warning = large_delta(told["delta"], evidence.plan["parties" if whole else "records"])
    if warning is not None:
        return f"{stated}: {warning}."
    return f"{stated}. It is what is granted, in probability, beyond the factor of ε."


def unprotected(evidence: Evidence) -> str:
    """What is outside the guarantee."""
    lines = [f"{begun('; '.join(evidence.statement['unprotected']))}."]
    if outcome := evidence.statement["run"]["outcome"]:
        lines.append(f"{begun(outcome)}.")
    return " ".join(lines)


def query(evidence: Evidence) -> str:
    """What parties are asked, and what is released."""
    plan = evidence.plan
    return f"Each party is asked for {plan['query']}. Released: {plan['released']}."


def sensitivity(evidence: Evidence) -> str:
    """How far one unit moves a sum, and by what it is bounded."""
    clip = evidence.plan["clip_norm"]
    bounded = (
        "the strategy bounds it: by loss, regulariser and bound on features, by a clip norm that "
        "moves from round to round, or by declared ranges"
        if clip is None
        else f"every contribution is clipped to norm {clip:.6g} before it is added"
    )
    return f"{begun(bounded)}. With the rounding to the grid: {_each(evidence.plan, _BOUNDS)}."


def mechanism(evidence: Evidence) -> str:
    """Law and scale of the noise."""
    who = "the parties add it" if evidence.plan["noise_at"] == "parties" else "the server adds it"
    shares = [part["share"] for part, _ in releases_of(evidence.plan) if "share" in part]
    if not shares:
        return f"{begun(_each(evidence.plan, _SCALES))}; {who}."
    honest = NoiseShare(**shares[0]).honest
    return (
        f"{begun(_each(evidence.plan, _OF_SHARES))}, in steps of the grid; each party adds a "
        f"share, of the law {shares[0]['law']}, and {honest} shares are all the noise that is "
        "stated."
    )


def sampling(evidence: Evidence) -> str:
    """Whether the sampler is the one that was accounted for."""
    made, rate = evidence.statement["run"]["sampler"], evidence.plan["sampling_rate"]
    assumed = sampler_of(least_rate_of(evidence.plan))
    if made != assumed:
        return f"The accounting assumes {assumed}, and it was {made}: the stated ε does not hold."
    if made == "full batch":
        return "No: every release uses all records, and no amplification by sampling is claimed."
    return f"{begun(str(made))} sampling, at rates up to {rate:g}, as the accounting assumes."


def composition(evidence: Evidence) -> str:
    """By which theorem the releases add up."""
    told = evidence.statement["guarantee"]
    count = sum(number for _, number in releases_of(evidence.plan))
    made = evidence.statement["run"]["releases_made"]
    early = "" if made is None else f" The run ended after {made} of them; all are counted."
    return (
        f"{count} release{'s'[: count != 1]} together, by {told['accountant_version']} (accountant "
        f"{told['accountant']!r}), an upper bound.{early}"
    )


def earlier(evidence: Evidence) -> str:
    """What the ledger says of other runs."""
    ledger = evidence.statement["ledger"]
    if ledger is None:
        return (
            "not covered: no ledger was kept, hence earlier releases of the data are not counted."
        )
    return (
        f"Other runs had spent ε = {rounded_up(ledger['spent_before_epsilon'])} of the budget of "
        f"the data set, ε = {ledger['budget_epsilon']:g} at δ = {ledger['budget_delta']:g}. Its "
        f"ledger refuses what goes beyond; it had {ledger['rows']} rows, head {ledger['head']}. "
        "Releases of the same people from elsewhere are not in it."
    )


def post_processing(evidence: Evidence) -> str:
    """Whether metrics are outside."""
    if evidence.statement["run"]["metrics_published"]:
        return (
            "Yes: accuracy and loss on records of the parties are in the results without noise. A "
            "simulation shows them; a release does not."
        )
    return (
        "No: models, statistics and this dossier follow from noisy releases and public facts "
        "alone, and no metric on records of the parties was published."
    )


def tuning(evidence: Evidence) -> str:
    """How hyper-parameters were chosen."""
    return f"{begun(evidence.statement['run']['tuning'])}."


def _each(plan: Mapping[str, Any], names: tuple[str, ...]) -> str:
    """These numbers of every kind of noise in a plan, equal ones together."""
    told: dict[str, int] = {}
    for written, count in releases_of(plan):
        facts = ", ".join(f"{name} {_short(v)}" for name, v in _found(written, names))
        line = f"{written['name']}{': ' if facts else ''}{facts}"
        told[line] = told.get(line, 0) + count
    lines = [f"{line} ({count} ×)" for line, count in told.items()]
    more = f"; and {len(lines) - _MOST} more, in plan.json" if len(lines) > _MOST else ""
    return f"{'; '.join(lines[:_MOST])}{more}"


def _found(written: Mapping[str, Any], names: tuple[str, ...]) -> list[tuple[str, float]]:
    """Numbers of a noise by name, those of its parts behind the part's name."""
    found = []
    for name, value in written.items():
        if isinstance(value, dict):
            found += [(f"{name} {inner}", number) for inner, number in _found(value, names)]
        elif name in names:
            found.append((name.replace("_", " "), value))
    return found


def _short(value: float) -> str:
    return f"{value:.6g}"
