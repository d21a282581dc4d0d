"""Facts of a run, in sentences: utility, trust, implementation, and the data around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedpriv.privacy.mechanisms import L2LaplaceMechanism
from fedpriv.privacy.planning.written_plan import releases_of
from fedpriv.privacy.unit import Unit
from fedpriv.simulations.report.curves import begun

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fedpriv.simulations.dossier.evidence import Evidence

_METRICS = (
    "accuracy", "balanced_accuracy", "auc", "f1", "loss", "log_loss", "rmse", "mae", "r2",
)  # fmt: skip


def accuracy(evidence: Evidence) -> str:
    """The metrics of the result, and on what they were measured."""
    result = evidence.result
    found = [
        f"{m.replace('_', ' ')} {result[m]:.4g}" for m in _METRICS if result.get(m) is not None
    ]
    if not found:
        return (
            "not covered: accuracy. No metric was computed, since there are no test records that "
            "are declared public; measure it on data that may be used for it, or pay for it."
        )
    where = (
        "of the parties themselves, without noise"
        if evidence.statement["run"]["metrics_published"]
        else "that are taken to be public"
    )
    number = result.get("test_records")
    counted = "test records" if number is None else f"{number} test records"
    return f"{begun(', '.join(found))}, on {counted} {where}."


def systematic(evidence: Evidence) -> str:
    """What bounds and clipping do, as far as files tell."""
    data, clip = evidence.configuration["data"], evidence.plan["clip_norm"]
    lines = []
    if "feature_norm" in data:
        lines.append(
            f"features of every record are brought within norm {data['feature_norm']:g} "
            f"(data.scaling = {data.get('scaling')!r}): longer ones count less than they are"
        )
    if clip is not None:
        lines.append(f"contributions beyond norm {clip:.6g} are shortened, which biases the sum")
    lines.append(
        "the noise itself has mean zero, and is spread as stated above; how often bounds and "
        "clipping took effect depends on the records, and is not published"
    )
    return f"{begun('; '.join(lines))}."


def trust(evidence: Evidence) -> str:
    """Who sees what."""
    return f"{begun('; '.join(evidence.statement['trust']['sees']))}."


def collusion(evidence: Evidence) -> str:
    """What secure aggregation withstands."""
    trusted = evidence.statement["trust"]
    level = trusted["secure_aggregation"]
    if told := trusted["tolerates"]:
        return f"Secure aggregation: {level}. {begun(told)}."
    return (
        f"Secure aggregation: {level}. Nothing is guaranteed against parties that share what they "
        "know with whoever sees exact answers, beyond the guarantee of what was released."
    )


def randomness(evidence: Evidence) -> str:
    """Where noise came from."""
    if evidence.statement["run"]["randomness"] == "operating system":
        return "AES-256 in counter mode, keyed by the operating system. No seed reaches the noise."
    return "A seed, so that the study can be repeated: whoever knows it can subtract the noise."


def floating_point(evidence: Evidence) -> str:
    """How sums and noise are computed."""
    plan = evidence.plan
    step = f"a grid of {plan['step']:.3g}"
    words = (
        f"Answers are rounded to integers on {step} and added as integers; the noise is integer "
        "noise, and the sensitivity above includes the rounding. Each coordinate of the noise is "
        "within 2⁻⁸⁰ of its stated law."
    )
    if L2LaplaceMechanism.name in _laws(plan):
        words += (
            " The radius of the L2-Laplace law is computed in double precision: read a pure ε of d "
            "coordinates as (ε, d·2⁻⁴⁸), and add that up over releases."
        )
    return words


def _laws(plan: Mapping[str, Any]) -> set[str]:
    """Names of all laws in a written plan, those of parts among them."""
    return {name for written, _ in releases_of(plan) for name in _names(written)}


def _names(written: Mapping[str, Any]) -> Iterator[str]:
    yield str(written.get("name", ""))
    for part in written.values():
        if isinstance(part, dict):
            if {"sensitivity", "epsilon", "dimension"} <= part.keys():  # of an L2-Laplace law
                yield L2LaplaceMechanism.name
            yield from _names(part)


def side_channels(evidence: Evidence) -> str:
    """What the outcome leaves out; the rest is not covered."""
    simulated = evidence.simulated
    kept = (
        "" if simulated else " Seconds, bytes and numbers of exchanges are no part of the outcome."
    )
    told = [line for line in evidence.statement["not_covered"] if "side channels" in line]
    return f"not covered: {'; '.join(told)}.{kept}"


def software(evidence: Evidence) -> str:
    """Versions, and code that is not fedpriv's."""
    statement = evidence.statement
    version = f"fedpriv {statement['fedpriv']}; {statement['guarantee']['accountant_version']}"
    guests = statement["run"]["guests"]
    if not guests:
        return f"{version}. No model, loss, strategy or data loader of somebody else took part."
    return (
        f"{version}. Code that is not fedpriv's: {'; '.join(guests)}. Questions and noise are "
        "fedpriv's own; what that code does was not proved."
    )


def verification(evidence: Evidence) -> str:
    """What an audit measured."""
    audit = evidence.audit
    if audit is None:
        return (
            "not covered: no audit was given. `fedpriv audit` runs the strategy many times on "
            "crafted neighbours, and `fedpriv dossier --audit` brings what it found."
        )
    return audit_sentence(evidence, audit)


def audit_sentence(evidence: Evidence, audit: Mapping[str, Any]) -> str:
    """What an audit found, against what it audited."""
    found, claimed = audit["epsilon"], audit["claimed"]["epsilon"]
    measured = "ε without limit" if found is None else f"ε ≥ {found:.3g}"
    verdict = (
        "Nothing contradicts the claim, which proves nothing more"
        if audit["passed"]
        else "IT CONTRADICTS THE CLAIM: the guarantee does not hold"
    )
    same = audit["config_hash"] == evidence.result["config_hash"]
    settings = "the settings of this run" if same else "OTHER settings of the same strategy"
    version = "" if audit["fedpriv"] == evidence.statement["fedpriv"] else " of another version"
    runs = f"2 × {audit['runs']} runs on crafted neighbours"
    if canaries := audit.get("canaries"):
        runs = f"1 run with {canaries} canaries"
    return (
        f"An audit{version} of {settings} measured at least {measured} where ε = {claimed:.4g} is "
        f"claimed, with {100 * audit['confidence']:g} % confidence, from {runs}; "
        f"the adversary saw {audit['sees']}. {verdict}."
    )


def assumptions(evidence: Evidence) -> str:
    """What is taken from somebody's word, and what the statement warns of."""
    told = evidence.statement["run"]["assumptions"]
    others = [line for line in evidence.statement["warnings"] if line not in told]
    lines = [*told, *(f"warning: {line}" for line in others)]
    declared = "the numbers of records of one person, and public numbers of records, in config.toml"
    return f"{begun('; '.join([declared, *lines]))}."


def collection(evidence: Evidence) -> str:
    """Where records were before the noise."""
    where = {
        "one-place": "Yes: the records of all parties were in one place, in the process that "
        "ran this.",
        "ideal": "It was a simulation in one process, which held all records.",
        "off": "Records stayed with their parties; the server saw each party's answer by itself.",
    }
    level = evidence.statement["trust"]["secure_aggregation"]
    kept = "Records stayed with their parties, whose answers were masked on their way to the sum."
    return (
        f"{where.get(level, kept)} No noise is put on records when they are collected: until the "
        "noise of a release, they are as their owners keep them."
    )


def access(evidence: Evidence) -> str:
    """What the files say of access; the rest is for the owner."""
    own = (
        "" if evidence.simulated else " What else the run left is in private/, for its owner alone."
    )
    return (
        "not covered: rights to read records, keys and ledgers are set on the machines that hold "
        f"them.{own}"
    )


def population(evidence: Evidence) -> str:
    """What no guarantee of this kind hides."""
    unit = Unit(evidence.statement["guarantee"]["unit"])
    return (
        f"not covered: {evidence.statement['not_covered'][-1]}. The guarantee bounds what follows "
        f"from {unit.words}. What holds for everybody may concern a person who is not in the data."
    )
