"""Shares of noise: for which sums, and against how many colluders, no event of a release tells.

The noise that a release is sure to have is that of minimum − colluders shares, and it is charged by
that difference. Five parties of whom one may be missing and one collude, and five of whom nobody
may be missing and two collude, cost the same.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import pytest

from fedpriv._collusion import tolerance
from fedpriv._toml import parse_toml
from fedpriv.federation.deployed.statements.statement_document import recomputed
from fedpriv.federation.engines.grid import RoundFailed
from fedpriv.federation.protocol.level import Protection
from fedpriv.privacy.mechanisms.shares import NoiseShare
from fedpriv.privacy.statement.facts import RunFacts, TrustModel
from fedpriv.privacy.statement.statement import warnings_of, who_sees_what
from fedpriv.simulations.deploy.keys import read_identity
from fedpriv.simulations.deploy.run.jobs.attestation import signed_by_server
from fedpriv.simulations.deploy.run.public_facts import prepare_deployed
from fedpriv.simulations.deploy.run.server import deployed_federation
from fedpriv.simulations.experiment.file import parse_experiment
from fedpriv.simulations.run.prepare import build_strategy
from tests.federation.deployed.deployments import FIVE, HELD, PATIENCE, Deployment
from tests.federation.deployed.test_hostile_statements import asked

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def deployed(folder: Path, *, dropout: float, law: str = "auto") -> Deployment:
    return Deployment(
        folder=folder,
        names=FIVE,
        sizes=HELD,
        policy={"noise_at": "parties", "min_noise": 0.01},
        experiment={
            "privacy": {"noise_at": "parties", "share_law": law},
            "strategy": {"rounds": 1},
            "run": {"dropout": dropout},
        },
    )


def sized_for(
    document: Mapping[str, Any], *, minimum: int, colluders: int, told: bool = True
) -> dict[str, Any]:
    """A statement in which the shares, and all that follows from them, are of other numbers.

    Or in which nothing is ``told`` of them: as if the noise of each party were enough.
    """
    found = deepcopy(dict(document))
    statement, masks = found["statement"], found["masks"]
    plan, trust, guarantee = statement["plan"], statement["trust"], statement["guarantee"]
    share: NoiseShare | None = None
    for mechanism in plan["mechanisms"]:
        mechanism["share"] |= {"minimum": minimum, "colluders": colluders}
        share = NoiseShare(**mechanism["share"])
    assert share is not None
    found["noise_shares"] = {"minimum": minimum, "colluders": colluders, "n_min": share.honest}
    if not told:
        kept = ("count", "adjacency", "unit", "l1_sensitivity", "l2_sensitivity")
        variance = share.honest * share.parameter
        plan["mechanisms"] = [
            {"name": "skellam", "variance": variance, **{name: each[name] for name in kept}}
            for each in plan["mechanisms"]
        ]
        found["noise_shares"], share = None, None
    protection = Protection(**{each.name: masks[each.name] for each in fields(Protection)})
    opened = protection.parameters(plan["parties"], minimum=minimum)
    masks |= {"minimum": opened.minimum, "missing": opened.missing}
    trust |= {"dropped_parties": opened.missing, "least_parties": opened.minimum}
    trust["tolerates"] = tolerance(
        parties=plan["parties"],
        mode=masks["level"],
        colluders=masks["colluders"],
        minimum=opened.minimum,
        shares=None if share is None else share.honest,
    )
    model = TrustModel(**{each.name: trust[each.name] for each in fields(TrustModel)})
    known = {"parties": plan["parties"], "noise_at": plan["noise_at"], "share": share}
    trust["sees"] = list(who_sees_what(model, released=plan["released"], **known))
    statement["warnings"] = list(
        warnings_of(
            RunFacts(**statement["run"]),
            model,
            epsilon=guarantee["epsilon"],
            delta=guarantee["delta"],
            units=plan["records"],
            sampler="full batch",
            ledger_kept=True,
            **known,
        )
    )
    return found


@pytest.mark.parametrize("hand", [False, True], ids=["attest", "handover"])
def test_no_party_signs_for_more_colluders_than_its_noise_was_for(
    hand: bool, tmp_path: Path
) -> None:
    """It signed that the noise holds "even if 2 of them tell the server what they added"."""
    deployment, out = deployed(tmp_path, dropout=0.2), tmp_path / "server" / "runs" / "a"
    deployment.run(out)
    key, text = read_identity(deployment.server / "identity.key"), (out / "config.toml").read_text()
    true = signed_by_server(out, deployment.roster, key).document
    assert true["noise_shares"] == {"minimum": 4, "colluders": 1, "n_min": 3}
    lie = sized_for(true, minimum=5, colluders=2)
    assert all(each.passed for each in recomputed(lie))  # nothing in it tells
    assert "even if 2 of them" in " ".join(lie["statement"]["trust"]["sees"])
    reply = asked(deployment, out, text, lie, hand=hand)
    assert "claims shares of noise for" in reply.refusal
    assert not reply.messages
    lie = sized_for(true, minimum=4, colluders=1, told=False)
    wrong = [each.words for each in recomputed(lie) if not each.passed]
    assert wrong == ["the parties added the noise, and it does not say in what shares."]
    reply = asked(deployment, out, text, lie, hand=hand)
    assert "claims shares of noise for None" in reply.refusal
    assert not reply.messages
    again = sized_for(true, minimum=4, colluders=1)
    assert asked(deployment, out, text, again, hand=hand).messages


def test_no_party_adds_a_share_for_smaller_sums_than_its_experiment_says(tmp_path: Path) -> None:
    """Its statement said that no sum of fewer than five was opened, where one of four was."""
    deployment = deployed(tmp_path, dropout=0.0)
    prepared = prepare_deployed(
        parse_experiment(parse_toml(deployment.config(), "experiment")),
        sizes=deployment.roster.sizes,
    )
    query = build_strategy(prepared, run=f"{prepared.experiment.run_name}-0a").ask()
    assert query is not None
    assert query.share is not None
    assert (query.share.minimum, query.share.colluders) == (5, 1)
    # One honest share fewer, and each of a larger variance: the same noise, at the same price.
    more = query.share.parameter * 4 / 3
    smaller = replace(query, share=replace(query.share, minimum=4, parameter=more))

    def summed(asked: Any) -> int:
        grid, seal = deployment.grid(), deployment.seal()
        parties = deployed_federation(
            prepared, deployment.roster, grid, seal=seal, patience=PATIENCE
        )
        return len(parties.sum(asked).sizes)

    with pytest.raises(RoundFailed, match="sized for sums of 4 parties with 1 colluders"):
        summed(smaller)
    assert summed(query) == 5
