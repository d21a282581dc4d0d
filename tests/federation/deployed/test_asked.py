"""What a run may ask for: the forms of query of its strategy, whatever else a policy allows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from pydantic import BaseModel

from fedpriv._toml import parse_toml
from fedpriv.federation.deployed.asked import EVALUATION, forms_of, require_asked
from fedpriv.federation.deployed.statements.attesting import require_experiment
from fedpriv.federation.engines.grid import RoundFailed
from fedpriv.federation.party.guard import QueryRefused
from fedpriv.federation.queries.accuracy import AccuracyQuery
from fedpriv.federation.queries.bounds import grid_of
from fedpriv.federation.queries.kinds import (
    QUERIES,
    GradientQuery,
    LocalTrainingQuery,
    MomentsQuery,
    RiskGradientQuery,
)
from fedpriv.federation.queries.statistics import BY_PARTY
from fedpriv.learning.training.settings import LocalSgd
from fedpriv.privacy.unit import Unit
from fedpriv.secagg import FixedPoint
from fedpriv.simulations.deploy.run.public_facts import prepare_deployed
from fedpriv.simulations.deploy.run.server import deployed_federation
from fedpriv.simulations.experiment.file import parse_experiment
from fedpriv.simulations.run.prepare import build_strategy, prepare
from fedpriv.strategies import STRATEGIES
from fedpriv.strategies.common.building import StrategyInfo
from fedpriv.strategies.description import INFO as DESCRIPTION
from tests.federation.deployed.deployments import FOUR, PATIENCE, Deployment
from tests.federation.deployed.statement_scenes import RUN, Scene

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.federation.queries.base import Query


@pytest.mark.parametrize("kind", [MomentsQuery, RiskGradientQuery, AccuracyQuery])
def test_a_run_of_one_strategy_puts_no_query_of_another(
    kind: type[MomentsQuery | RiskGradientQuery | AccuracyQuery], tmp_path: Path
) -> None:
    """It was answered, at the price of a gradient, and the statement told of noisy gradients."""
    allowed = {"queries": ["gradient", "moments", "risk-gradient", "accuracy"], "max_clip": 8.0}
    deployment = Deployment(folder=tmp_path, **FOUR, policy=allowed)
    prepared = prepare_deployed(
        parse_experiment(parse_toml(deployment.config(), "experiment")),
        sizes=deployment.roster.sizes,
    )
    name = f"{prepared.experiment.run_name}-0a"
    honest = build_strategy(prepared, run=name).ask()
    assert honest is not None
    parties = len(prepared.task.sizes)
    point: dict[str, Any] = {"theta": np.zeros(prepared.task.dimension)}
    more: dict[Any, dict[str, Any]] = {
        MomentsQuery: {},
        RiskGradientQuery: {**point, "exchange": 0},
        AccuracyQuery: point,
    }
    query = kind(
        run=name,
        round=0,
        grid=grid_of(step=2.0**-10, bound=2.0**30, parties=parties),
        event=honest.event,
        **more[kind],
    )
    federation = deployed_federation(
        prepared,
        deployment.roster,
        deployment.grid(),
        seal=deployment.seal(),
        patience=PATIENCE,
    )
    with pytest.raises(RoundFailed, match="asks for gradient, and this query is for"):
        federation.sum(query)
    assert len(federation.sum(honest).sizes) == parties


GRADIENT = GradientQuery(
    run="r", round=0, grid=FixedPoint(step=2.0**-20), event=None, theta=np.zeros(3), clip_norm=1.0
)
UPDATE = LocalTrainingQuery(
    run="r",
    round=0,
    grid=FixedPoint(step=2.0**-20),
    event=None,
    theta=np.zeros(3),
    training=LocalSgd(epochs=1, batch_size=8, learning_rate=0.5),
    clip_norm=1.0,
)
SECOND = MomentsQuery(run="r", round=0, grid=FixedPoint(step=2.0**-20), event=None)


@pytest.mark.parametrize(
    ("strategies", "query"),
    [
        ("federated-averaging", UPDATE),
        ("federated-averaging", replace(UPDATE, counting=0.5)),
        ("scaffold", replace(UPDATE, control=np.zeros(3))),
        ("gradient-perturbation second-order agd learned-protection", GRADIENT),
        ("adaptive-clipping", replace(GRADIENT, counting=0.5)),
        ("adaptive-clipping", replace(GRADIENT, centre=np.zeros(3), scale=np.ones(3))),
        ("", replace(GRADIENT, counting=0.5, scale=np.ones(3))),
        ("second-order", SECOND),
        ("inference", replace(SECOND, label_scale=1.0, label_bound=1.0)),
        ("", replace(SECOND, weighting="logistic", theta=np.zeros(3))),
    ],
    ids=lambda value: getattr(value, "form", value),
)
def test_a_query_of_the_right_kind_is_for_what_the_statement_tells_of(
    strategies: str, query: Query, tmp_path: Path
) -> None:
    """Of its kind each was answered: the statement told of updates, and variates had left, too."""
    engagement = Deployment(folder=tmp_path, **FOUR).host("north").engagement
    asked = replace(query, run=engagement.run)
    for info in STRATEGIES.values():
        if query.kind not in {form.split()[0] for form in info.asks}:
            continue
        here = replace(engagement, strategy=info.name, forms=forms_of(info.asks, joint=False))
        if info.name in strategies.split() or (query is GRADIENT and "local-" in info.name):
            require_asked(asked, here)
        else:
            with pytest.raises(QueryRefused, match="and this query is for"):
                require_asked(asked, here)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((info.name, {}) for info in STRATEGIES.values() if info.private),
        ("adaptive-clipping", {"rule": "coordinate"}),
        ("federated-averaging", {"clip_quantile": 0.5, "clip": 1.0, "count_noise": 40.0}),
    ],
)
def test_what_a_strategy_asks_for_is_what_it_says(name: str, options: dict[str, Any]) -> None:
    whole = STRATEGIES[name].units == (Unit.PARTY,)
    study: dict[str, Any] = {
        "data": {"name": "synthetic", **({"partition": "natural"} if whole else {})},
        "strategy": {"name": name, **options, **({"allow_swamped": True} if whole else {})},
        "privacy": {"unit": "party", "adjacency": "add-remove"} if whole else {},
    }
    query = build_strategy(prepare(parse_experiment(study)), run="study").ask()
    assert query is not None
    assert query.form in forms_of(STRATEGIES[name].asks, joint=query.joint_fit)


def test_a_private_evaluation_has_no_statement() -> None:
    """Its parties had counted right answers, and would have signed that it released a model."""
    scene = Scene.make()
    document = scene.document()
    document["statement"]["run"]["run"] = f"{RUN}{EVALUATION}00ff00ff"
    with pytest.raises(QueryRefused, match="a private evaluation has no statement"):
        require_experiment(document, scene.signatory())


def test_every_strategy_that_promises_something_asks_for_something() -> None:
    """One that says nothing of itself would be refused by every deployed party."""
    for info in (*(info for info in STRATEGIES.values() if info.private), DESCRIPTION):
        assert info.asks, info.name
        assert all(form.split()[0] in QUERIES for form in info.asks), info.name
        assert forms_of(info.asks, joint=False) == {*info.asks} - {BY_PARTY}
        assert forms_of(info.asks, joint=True) == {"risk-gradient"}
    assert forms_of(DESCRIPTION.asks, joint=False, by_party=True) == {BY_PARTY}
    assert forms_of((), joint=True, hessian=True) == {"risk-gradient", "hessian"}
    assert not StrategyInfo(
        name="own", summary="", noise_by="server", convex_only=False, options=BaseModel
    ).asks
