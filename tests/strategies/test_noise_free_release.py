"""Noise-free twins are never released: no road leads from one to a ledger."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from fedpriv import strategies
from fedpriv.federation.strategy.adaptive import AdaptiveStrategy, Step
from fedpriv.federation.strategy.base import Run
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.planning.adaptive_plan import AdaptivePlan
from fedpriv.privacy.planning.filters import GdpFilter
from fedpriv.privacy.planning.noise_free import NoiseFree
from fedpriv.privacy.randomness import RandomStream
from tests.federation.worlds import PRIVATE, build, streams
from tests.strategies.twins import OPTIONS, TASK, twin

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.federation.strategy.adaptive import Round


@pytest.mark.parametrize("name", PRIVATE)
def test_a_release_refuses_to_go_without_noise(name: str, tmp_path: Path) -> None:
    options = OPTIONS.get(name, {})
    with pytest.raises(ValueError, match=f"a release of {name} must have noise"):
        build(name, TASK, noise_free=True, release=True, **options)
    budget = Budget(epsilon=1.0, delta=1e-6)
    with (
        Ledger.create(
            tmp_path / "l", data_name="d", budget=budget, adjacency="replace-one"
        ) as ledger,
        pytest.raises(ValueError, match=f"a release of {name} must have noise"),
    ):
        build(name, TASK, noise_free=True, ledger=ledger, **options)


def test_no_budget_is_no_licence_to_leave_the_noise_out() -> None:
    """That has to be asked for."""
    ask = partial(
        strategies.build,
        "gradient-perturbation",
        task=TASK,
        adjacency="replace-one",
        options={},
        noise=streams(0, "noise"),
        run="run",
    )
    with pytest.raises(ValueError, match="budget must be given for gradient-perturbation"):
        ask(budget=None)
    with pytest.raises(ValueError, match="budget must be None for gradient-perturbation"):
        ask(budget=Budget(epsilon=1.0, delta=1e-6), noise_free=True)
    with pytest.raises(ValueError, match="epsilon must be positive and finite"):
        Budget(epsilon=float("inf"), delta=0.0)


def test_a_twin_cannot_be_attached_to_a_release(tmp_path: Path) -> None:
    strategy = build("gradient-perturbation", TASK, noise_free=True)
    real = Run(name="run", noise=lambda _: RandomStream.from_os(), release=True)
    with pytest.raises(ValueError, match=r"run\.release must be False"):
        strategy.attach(real)
    with pytest.raises(ValueError, match="plan must be given for a run on a ledger"):
        type(strategy)(task=TASK, plan=NoiseFree(step=1.0, clip_norm=1.0), run=real, optimiser=None)  # type: ignore[call-arg]


class Careless(AdaptiveStrategy):
    """It has a plan, and proposes a release without noise."""

    name = "careless"

    def _play(self) -> Round:
        query = twin("gradient-perturbation").ask()
        assert query is not None
        yield Step(release=None, query=query, draw=lambda answer, _: answer.value)


def test_a_release_without_noise_is_not_charged_as_nothing() -> None:
    budget = Budget(epsilon=1.0, delta=1e-6)
    plan = AdaptivePlan(
        strategy="careless",
        query="",
        released="",
        parties=TASK.parties,
        records=TASK.records,
        smallest_party=TASK.smallest,
        dimension=TASK.dimension,
        step=1.0,
        filter=GdpFilter(budget=budget, adjacency=Adjacency.REPLACE_ONE),
    )
    run = Run(name="run", noise=streams(0, "noise"))
    with pytest.raises(RuntimeError, match="a release must have noise where there is a plan"):
        Careless(task=TASK, plan=plan, rounds=1, run=run).ask()


@pytest.mark.parametrize(
    "wrong", [{"step": 0.0}, {"rates": ()}, {"rates": (1.5,)}, {"clip_norm": -1.0}]
)
def test_what_stands_for_a_plan_is_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        NoiseFree(**{"step": 1.0, **wrong})
