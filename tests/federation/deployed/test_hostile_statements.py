"""Statements that a server has changed in one place: none is signed, and none but words of its own.

Every value of a statement is changed in turn, the server signs what comes of it, and whoever
recomputes it must find out; or the value is one of those that docs/signed-statement.md calls the
server's own.
"""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from hashlib import sha256
from math import isclose
from typing import TYPE_CHECKING, Any

import pytest

from fedpriv._toml import parse_toml, to_toml
from fedpriv.federation.deployed.stated_plan import digest_of_releases
from fedpriv.federation.deployed.statements.attesting import attest
from fedpriv.federation.deployed.statements.stated_releases import releases_of
from fedpriv.federation.deployed.statements.statement_document import recomputed
from fedpriv.federation.deployed.statements.verifying import verify
from fedpriv.federation.party.guard import QueryRefused
from fedpriv.federation.protocol.errands import Attest, Attested, HandOver
from fedpriv.federation.strategy.joint import HESSIANS_SEEN
from fedpriv.privacy.planning.objective.objective import ObjectiveNoise
from fedpriv.privacy.planning.objective.objective_fit import objective_fit
from fedpriv.privacy.planning.objective.objective_rules import ObjectiveProblem
from fedpriv.privacy.statement.facts import RunFacts, TrustModel
from fedpriv.privacy.statement.signed import sign_as_server
from fedpriv.privacy.statement.statement import warnings_of
from fedpriv.simulations.deploy.keys import read_identity
from fedpriv.simulations.deploy.run.jobs.attestation import signed_by_server
from fedpriv.simulations.run.statement.assumptions import tuning_sentence
from tests.federation.deployed import test_deployed_inference as fits
from tests.federation.deployed.deployments import Deployment
from tests.federation.deployed.errands import CLEAR, ROUND, RUN, handled
from tests.federation.deployed.statement_scenes import Scene, adaptive_plan, gaussian_plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from fedpriv.federation.protocol.wire import Reply
    from fedpriv.privacy.planning.fixed_plan import FixedPlan

Place = tuple[str | int, ...]

# What nobody can recompute from the document. The last ones a party holds against its experiment.
OF_THE_SERVER = (
    *(f"statement.plan.{name}" for name in ("query", "step", "dimension", "clip_norm", "parts")),
    *(f"statement.ledger.{name}" for name in ("budget_epsilon", "budget_delta", "rows", "head")),
    *("statement.ledger.spent_before_epsilon", "statement.run.date"),
    *("roster", "server", "experiment", "model", "parties"),
)
OF_THE_EXPERIMENT = (
    *(f"statement.run.{name}" for name in ("run", "data", "tuning", "outcome", "assumptions")),
    *("statement.run.person_records", "statement.run.person_parties"),
    *("statement.plan.smallest_party", "statement.plan.budget.epsilon", "masks"),
)
# Other forms of the guarantee, of which more may be said than is true.
FORMS = ("delta_times_units", "gdp_mu", "zcdp_rho", "attack_advantage")
# Noise is stated on a scale of its own, which events do not have.
SCALES = ("sensitivity", "stddev", "linear", "output", "hessian", "extra_regulariser")


def objective_plan() -> FixedPlan:
    """A perturbed objective, with its Hessian."""
    plan = gaussian_plan()
    problem = ObjectiveProblem(
        lipschitz=1.0,
        lipschitz_everywhere=True,
        curvature=0.25,
        curvature_rank=1,
        one_sided=True,
        records=plan.records,
        regulariser=0.1,
        dimension=plan.dimension,
        tolerance=1e-6,
    )
    noise = ObjectiveNoise(
        law="gaussian",
        epsilon=plan.budget.epsilon,
        delta=plan.budget.delta,
        adjacency=plan.adjacency,
    )
    return replace(
        plan,
        strategy="inference",
        released="the minimiser of the perturbed objective of all records, and the noisy Hessian",
        mechanisms=(objective_fit(noise, problem, step=plan.step, sensitivity=0.4),),
        accountant="auto",
    )


def leaves(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Every value of a document that has no parts."""
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    for name, part in parts:
        if isinstance(part, dict | list) and part:
            yield from leaves(part, (*place, name))
        else:
            yield (*place, name), part


def others(value: Any) -> tuple[Any, ...]:
    """What a server might write there: another number, and a claim of its own."""
    if isinstance(value, bool):
        return (not value, "nobody saw anything")
    if isinstance(value, int | float):
        return (value * 2, value / 2, "epsilon = 0.01")
    if isinstance(value, str) and ", fedpriv " in value:
        return (value.replace(", fedpriv ", ", as the regulator approved, fedpriv "),)
    return ("nothing of this is private",)


def changed(document: Mapping[str, Any], place: Place, value: Any) -> dict[str, Any]:
    found = deepcopy(dict(document))
    part: Any = found
    for name in place[:-1]:
        part = part[name]
    part[place[-1]] = value
    return found


def told(place: Place, names: tuple[str, ...]) -> bool:
    path = ".".join(map(str, place))
    return any(path == name or path.startswith(f"{name}.") for name in names)


@pytest.mark.parametrize(
    "scene",
    [
        Scene.make(gaussian_plan()),
        Scene.make(adaptive_plan()),
        Scene.make(objective_plan(), also_seen=HESSIANS_SEEN),
    ],
    ids=["server", "adaptive", "objective"],
)
def test_what_is_changed_in_a_statement_shows_unless_it_is_the_servers_own(scene: Scene) -> None:
    """A text in the place of the dimension, or of the noise of a fit, was signed, and verified."""
    document = scene.document()
    if scene.plan.strategy == "inference":
        name = document["statement"]["run"]["run"].replace("gradient-perturbation", "inference")
        document["statement"]["run"]["run"] = name
    assert [each.words for each in recomputed(document) if not each.passed] == []
    unseen = set()
    for place, value in leaves(document):
        for other in others(value):
            words = isinstance(other, str)
            if told(place, OF_THE_EXPERIMENT) or (told(place, OF_THE_SERVER) and not words):
                continue
            if set(place) & set(SCALES) and not words:
                continue
            if place[-1] in FORMS and not words and other > value:
                continue
            if all(each.passed for each in recomputed(changed(document, place, other))):
                unseen.add(place)
    own = {place for place in unseen if told(place, OF_THE_SERVER)}
    assert unseen == own
    numbers = [place for place in own if place[-1] in ("step", "dimension", "parts", "rows")]
    assert not numbers  # only what is text may be another text


def test_no_party_that_paid_for_more_signs_that_a_run_ended_early(tmp_path: Path) -> None:
    """It signed that one release was made, and had paid for three."""
    scene = Scene.make(gaussian_plan())
    document = scene.document()
    document["statement"]["run"]["releases_made"] = 1
    facts = RunFacts(**document["statement"]["run"])
    ended = next(words for words in _warnings(scene, facts) if words.startswith("the run ended"))
    document["statement"]["warnings"].insert(0, ended)
    assert [each.words for each in recomputed(document) if not each.passed] == []
    planned, signed = digest_of_releases(releases_of(document)), scene.signed(document)
    with scene.ledger(tmp_path / "one.ledger", rounds=1) as ledger:
        signature = attest(signed, ledger, scene.signatory(), planned=planned)
        assert verify(signed.with_party(signature), ledger=ledger).sound
    with (
        scene.ledger(tmp_path / "all.ledger") as ledger,
        pytest.raises(QueryRefused, match="ended after 1 releases"),
    ):
        attest(signed, ledger, scene.signatory(), planned=planned)
    for made in (3, 4, -1, 1.0, "one"):
        document["statement"]["run"]["releases_made"] = made
        assert not all(each.passed for each in recomputed(document))


def _warnings(scene: Scene, facts: RunFacts) -> tuple[str, ...]:
    guarantee = scene.plan.budget
    return warnings_of(
        facts,
        TrustModel(secure_aggregation="active"),
        epsilon=guarantee.epsilon,
        delta=guarantee.delta,
        units=500,
        sampler="full batch",
        parties=5,
        noise_at="server",
        share=None,
        ledger_kept=True,
    )


def test_without_masks_a_statement_tells_of_nobody_that_they_withstand() -> None:
    """It said so in numbers: one colluding, none missing, no sum of fewer than two."""
    document = Scene.make(gaussian_plan()).document()
    trust = document["statement"]["trust"]
    assert trust["colluding_parties"] == 1
    document["masks"] = None
    trust |= {"secure_aggregation": "off", "tolerates": ""}
    (finding,) = (each for each in recomputed(document) if each.check == "threshold")
    assert finding.passed is False
    trust |= {"colluding_parties": 0, "dropped_parties": 0, "least_parties": 1}
    (finding,) = (each for each in recomputed(document) if each.check == "threshold")
    assert finding.passed


def asked(
    deployment: Deployment,
    out: Path,
    config: str,
    document: Mapping[str, Any],
    *,
    hand: bool = False,
) -> Reply:
    """What a party says to a statement that its server has signed."""
    key = read_identity(deployment.server / "identity.key")
    text = sign_as_server(document, key).to_text().encode()
    message: Attest | HandOver = Attest(run=RUN, **ROUND, statement=text)
    if hand:
        model = (out / "model.npz").read_bytes()
        message = HandOver(run=RUN, **ROUND, statement=text, model=model)
    return handled(deployment, "north", message, config=config)


def test_a_party_signs_under_the_experiment_that_it_answered_under(tmp_path: Path) -> None:
    """The name of a run has no hash of where hyper-parameters came from, and the statement tells.

    A server ran one experiment, and showed another of the same name to have it signed: tuned on
    records that were not named, or on test records that are not said to be public.
    """
    deployment, out = Deployment(folder=tmp_path, **CLEAR), tmp_path / "server" / "runs" / "a"
    deployment.run(out, config=deployment.config(tuning={"on": "those of last year"}))
    own = (out / "config.toml").read_text()
    key = read_identity(deployment.server / "identity.key")
    true = signed_by_server(out, deployment.roster, key).document
    values = parse_toml(own, "experiment")
    del values["tuning"]
    other = to_toml(values)
    lie = deepcopy(dict(true))
    lie["statement"]["run"]["tuning"] = tuning_sentence(None)
    lie["experiment"] = sha256(other.encode()).hexdigest()
    reply = asked(deployment, out, other, lie)
    assert "has not answered the run under the experiment" in reply.refusal
    assert not reply.messages

    # Nor does it keep, beside the model, what is said of other people or other parties.
    for place, value, words in (
        (("statement", "plan", "smallest_party"), 99, "smallest_party = 99"),
        (("parties", 1, "name"), "nobody", "names other parties"),
        (("roster",), "00" * 32, "another roster than the run began under"),
    ):
        reply = asked(deployment, out, own, changed(true, place, value), hand=True)
        assert words in reply.refusal, reply.refusal
    assert not (deployment.home("north") / "models").exists()
    assert asked(deployment, out, own, true, hand=True).messages

    # Files may lie elsewhere.
    values = parse_toml(own, "experiment")
    values["data"]["schema"] = "/elsewhere/schema.toml"
    moved = to_toml(values)
    again = {**true, "experiment": sha256(moved.encode()).hexdigest()}
    (said,) = asked(deployment, out, moved, again).messages
    assert isinstance(said, Attested)


def test_the_noise_of_a_perturbed_objective_is_held_against_the_experiment(tmp_path: Path) -> None:
    """What it costs is stated; noise of a thousand times that, or of none, was signed as well."""
    deployment = fits.deployed(tmp_path, ["risk-gradient", "hessian"])
    out, text = tmp_path / "server/runs/a", fits.config(deployment)
    deployment.run(out, config=text)
    text = (out / "config.toml").read_text()
    key = read_identity(deployment.server / "identity.key")
    true = signed_by_server(out, deployment.roster, key).document
    (noise,) = true["statement"]["plan"]["mechanisms"]
    for part in ("linear", "output", "hessian"):
        more = json.loads(json.dumps(noise))
        more[part]["stddev"] *= 1000
        lie = changed(true, ("statement", "plan", "mechanisms"), [more])
        assert all(each.passed for each in recomputed(lie))  # nothing in it tells
        assert "not what its experiment implies" in asked(deployment, out, text, lie).refusal
    for wrong in ({"adjacency": "add-remove"}, {"unit": "person"}, {"stddev": 0.0}):
        less = json.loads(json.dumps(noise))
        less["hessian"] |= wrong
        lie = changed(true, ("statement", "plan", "mechanisms"), [less])
        assert "the statement is wrong (statement)" in asked(deployment, out, text, lie).refusal
    assert isclose(noise["linear"]["sensitivity"], 2.0)
    assert asked(deployment, out, text, true).messages
