"""Noise at the parties: the total is the release, with the noise that was planned, or nothing."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv import strategies
from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.federation import Sum
from fedpriv.privacy.accountants import UnsupportedEvent
from fedpriv.privacy.budget import BudgetExceeded
from fedpriv.privacy.ledger import Kind
from fedpriv.privacy.mechanisms.shares import SharedNoise
from fedpriv.privacy.planning.fixed_plan import FixedPlan
from fedpriv.privacy.planning.shares import Sharing
from fedpriv.privacy.statement import RunFacts, TrustModel, make_statement, to_text
from fedpriv.strategies.common.plans.sharing import share_reach, with_shares
from tests.federation.worlds import (
    PRIVATE,
    SilentFederation,
    build,
    ledger_at,
    linear_task,
    random_data,
    streams,
    train,
)
from tests.statistical import assert_mean_is

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.federation.queries.kinds import Query
    from fedpriv.privacy.randomness import RandomStream

SIZES, WIDTH = (20, 30, 40, 50, 60, 20, 30, 40, 50, 60), 4
TASK = linear_task(SIZES, WIDTH, regulariser=0.05)
LOST = {"dropout": 0.2, "colluding": 0.1}
SHARING = ("gradient-perturbation", "output-perturbation", "adaptive-clipping", "second-order")
OF_PARTIES = ("federated-averaging", "scaffold")  # tested where they are
LINEAR = "inference"  # of least squares alone; tested where it is
CASES = [
    ("gradient-perturbation", {"share_law": "skellam"}, {"rounds": 3}),
    ("gradient-perturbation", {"share_law": "discrete-gaussian"}, {"rounds": 3}),
    ("adaptive-clipping", {"share_law": "skellam"}, {"rounds": 3}),
    ("output-perturbation", {"share_law": "skellam"}, {}),
    ("output-perturbation", {"share_law": "discrete-gaussian"}, {}),
    ("output-perturbation", {"share_law": "polya"}, {"delta": 0.0}),
]
every_case = pytest.mark.parametrize(("name", "law", "options"), CASES)


def federation(task: Any = TASK) -> VectorizedFederation:
    return VectorizedFederation(
        random_data(task.sizes, WIDTH), task=task, sampling=streams(0, "parties")
    )


def shared(name: str, law: dict[str, Any], options: dict[str, Any], task: Any = TASK) -> Any:
    return build(name, task, sharing={**LOST, **law}, **options)


@every_case
def test_every_query_asks_for_a_share_and_states_its_event(
    name: str, law: dict[str, Any], options: dict[str, Any]
) -> None:
    strategy, world = shared(name, law, options), federation()
    plan = strategy.plan
    assert plan.noise_at == "parties"
    assert plan.epsilon <= plan.budget.epsilon
    while (query := strategy.ask()) is not None:
        mechanism = plan.mechanisms[query.round]
        assert isinstance(mechanism, SharedNoise)
        assert query.share == mechanism.share
        assert (query.share.minimum, query.share.colluders) == (8, 1)
        assert query.event == plan.event(query.round) == mechanism.event()
        strategy.learn(world.sum(query))
    assert strategy.round == plan.rounds


@every_case
def test_the_server_adds_nothing(name: str, law: dict[str, Any], options: dict[str, Any]) -> None:
    """Its stream is never opened, and the release is the total as it arrived."""

    def refuse(_: int) -> RandomStream:
        raise AssertionError("the server drew noise")

    strategy = shared(name, law, options)
    strategy._run = replace(strategy._run, noise=refuse)
    query = strategy.ask()
    total = np.resize(np.array([5, -3, 0, 2**20], np.int64), query.answer_width(TASK))
    release = strategy._release(Sum(total=total, step=query.grid.step, sizes=SIZES))
    divisor = 1 if name.startswith("output") else sum(SIZES)
    assert (release == total * query.grid.step / divisor).all()


@every_case
def test_the_released_noise_is_that_of_all_parties_and_never_below_the_accounted(
    name: str, law: dict[str, Any], options: dict[str, Any]
) -> None:
    """Seven standard errors, 3e-12; half the noise is caught."""
    task = linear_task(SIZES, 3000, regulariser=0.05)
    strategy = shared(name, law, options, task)
    answer = SilentFederation(task, sampling=streams(1, "p")).sum(strategy.ask())
    squares, mechanism = np.square(answer.value), strategy.plan.mechanisms[0]
    expected = mechanism.stddev_of(len(SIZES)) ** 2
    assert expected == pytest.approx(10 / 7 * mechanism.noise_stddev**2)
    assert_mean_is(squares, expected, float(squares.var()))
    assert squares.mean() > mechanism.noise_stddev**2
    with pytest.raises(AssertionError, match="outside"):
        assert_mean_is(squares / 4, expected, float(squares.var()) / 16)


@pytest.mark.parametrize("name", SHARING)
@pytest.mark.parametrize("sizes", [SIZES[:8], SIZES[2:], SIZES])
def test_allowed_drop_outs_are_survived(name: str, sizes: tuple[int, ...]) -> None:
    strategy = shared(name, {}, {})
    query = strategy.ask()
    total = np.full(query.answer_width(TASK), 1000, np.int64)
    strategy.learn(Sum(total=total, step=query.grid.step, sizes=sizes))
    assert strategy.round == 1
    if name == "output-perturbation":
        weight = sum(sizes) / sum(SIZES)
        np.testing.assert_allclose(strategy.theta, 1000 * query.grid.step / weight)


@pytest.mark.parametrize("name", SHARING)
def test_too_many_drop_outs_release_nothing(name: str) -> None:
    strategy = shared(name, {}, {})
    query = strategy.ask()
    before = strategy.theta.copy()
    few = Sum(total=np.zeros(WIDTH, np.int64), step=query.grid.step, sizes=SIZES[:7])
    with pytest.raises(RuntimeError, match=r"at least 8 parties.*Nothing was released"):
        strategy.learn(few)
    assert strategy.round == 0
    assert (strategy.theta == before).all()
    again = strategy.ask()
    assert again.round == 0
    strategy.learn(federation().sum(again))


def same(one: Query, other: Query) -> bool:
    from fedpriv.federation.queries.encoding import to_bytes

    return to_bytes(one) == to_bytes(other)


@pytest.mark.parametrize("name", SHARING)
def test_a_round_that_is_asked_again_is_the_same_query_to_the_byte(name: str) -> None:
    """So that a party repeats its answer instead of drawing a second share."""
    strategy = shared(name, {}, {})
    assert same(strategy.ask(), strategy.ask())
    assert same(shared(name, {}, {}).ask(), strategy.ask())


@pytest.mark.parametrize("name", sorted(set(PRIVATE) - {*SHARING, *OF_PARTIES, LINEAR}))
def test_other_strategies_refuse_with_the_reason(name: str) -> None:
    with pytest.raises(
        ValueError, match=r"noise_at must be 'server'.*only output-perturbation and"
    ):
        build(name, TASK, sharing={})


def test_an_unknown_place_is_refused() -> None:
    with pytest.raises(ValueError, match="noise_at must be one of server, parties"):
        build("gradient-perturbation", TASK, sharing={"noise_at": "cloud"})


@pytest.mark.parametrize(
    ("name", "law", "options", "reason"),
    [
        ("gradient-perturbation", {}, {"delta": 0.0}, "delta must be positive"),
        ("gradient-perturbation", {"share_law": "polya"}, {}, "share_law must not be 'polya'"),
        ("gradient-perturbation", {}, {"calibration": "textbook"}, "calibration must be 'exact'"),
        (
            "gradient-perturbation",
            {"share_law": "discrete-gaussian"},
            {"sampling_rate": 0.5, "adjacency": "add-remove"},
            "share_law must be 'auto' or 'skellam' with sampling",
        ),
        ("gradient-perturbation", {}, {"accountant": "gdp"}, "accountant must be"),
        ("gradient-perturbation", {"share_law": "laplace"}, {}, "law must be one of"),
        ("output-perturbation", {}, {"fit": "joint"}, "joint fit shows the server exact sums"),
        ("output-perturbation", {}, {"law": "gaussian"}, "law must be 'auto'"),
        ("output-perturbation", {"share_law": "skellam"}, {"delta": 0.0}, "only Pólya"),
        ("output-perturbation", {"dropout": 0.6, "colluding": 0.4}, {}, "at least one honest"),
    ],
)
def test_what_shares_cannot_do_is_refused_by_name(
    name: str, law: dict[str, Any], options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        shared(name, law, options)


def test_noise_that_could_wrap_around_64_bits_is_refused_before_anything_is_asked() -> None:
    plan = build("output-perturbation", TASK).plan
    assert isinstance(plan, FixedPlan)
    shares: dict[str, Any] = {"moved": 1e-3, "shape": (1.0,)}
    made = with_shares(plan, Sharing(parties=10), TASK, bound=1.0, **shares)
    reach, most = share_reach(made.mechanisms[0], TASK), 2.0**63 * plan.step
    with_shares(plan, Sharing(parties=10), TASK, bound=most - 2 * reach, **shares)
    with pytest.raises(ValueError, match="does not fit 64 bits"):
        with_shares(plan, Sharing(parties=10), TASK, bound=most - reach / 2, **shares)


def test_noise_too_wide_to_be_drawn_is_refused_before_anything_is_asked() -> None:
    with pytest.raises(ValueError, match="choose a coarser grid"):
        shared("output-perturbation", {}, {"epsilon": 1e-9, "delta": 0.0})


def test_a_schedule_shapes_the_shares() -> None:
    options = {"rounds": 3, "schedule": (1.0, 2.0, 4.0)}
    noise = [m.noise_stddev for m in shared("gradient-perturbation", {}, options).plan.mechanisms]
    assert noise == pytest.approx([noise[0], 2 * noise[0], 4 * noise[0]])


def test_one_record_less_needs_half_the_noise() -> None:
    noise = [
        shared("gradient-perturbation", {}, {"rounds": 3, "clip": 1.0, "adjacency": adjacency})
        .plan.mechanisms[0]
        .noise_stddev
        for adjacency in ("replace-one", "add-remove")
    ]
    assert noise[0] / noise[1] == pytest.approx(2, rel=5e-3)


# --- The ledger ---------------------------------------------------------------------------------


@every_case
def test_a_ledger_that_adds_epsilons_gets_the_run_declared(
    tmp_path: Path, name: str, law: dict[str, Any], options: dict[str, Any]
) -> None:
    ledger = ledger_at(tmp_path, delta=options.get("delta", 1e-6), composition="auto")
    strategy = shared(name, law, {**options, "ledger": ledger})
    train(strategy, federation())
    pure = law["share_law"] == "polya"
    assert [row.kind for row in ledger.rows()].count(Kind.DECLARED) == (0 if pure else 1)
    assert ledger.spent().guarantee.epsilon == pytest.approx(1.0)
    ledger.verify()
    with pytest.raises(BudgetExceeded):
        shared(name, law, {**options, "ledger": ledger, "run": "again"}).ask()


@pytest.mark.parametrize("law", ["skellam", "discrete-gaussian"])
def test_a_renyi_ledger_prices_every_round(tmp_path: Path, law: str) -> None:
    ledger = ledger_at(tmp_path, composition="rdp")
    train(shared("gradient-perturbation", {"share_law": law}, {"rounds": 3, "ledger": ledger}),
          federation())  # fmt: skip
    assert ledger.spent().guarantee.epsilon <= 1.0 + 1e-9
    ledger.verify()


def test_a_ledger_of_exact_gaussians_refuses_the_run(tmp_path: Path) -> None:
    ledger = ledger_at(tmp_path, composition="gdp")
    strategy = shared("gradient-perturbation", {}, {"rounds": 3, "ledger": ledger})
    with pytest.raises(UnsupportedEvent, match="gdp composition cannot price skellam"):
        strategy.ask()


# --- What it costs, and what it says ------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "delta", "most"),
    [
        ("gradient-perturbation", 1e-6, 1.10),  # Rényi accounting instead of exact
        ("output-perturbation", 1e-6, 1.10),
        ("output-perturbation", 0.0, sqrt(2)),  # the L1 form instead of the L2 form
    ],
)
def test_the_model_is_about_as_good_as_with_noise_at_the_server(
    name: str, delta: float, most: float
) -> None:
    """At one budget; the noise is larger by accounting, and by √(m/n_min) if nobody drops out."""
    sizes = (300,) * 10
    task = linear_task(sizes, WIDTH, regulariser=0.02)
    data = random_data(sizes, WIDTH)
    world = VectorizedFederation(data, task=task, sampling=streams(5, "parties"))
    X, y = data.dataset.train.X, data.dataset.train.y
    accuracy, noise = [], []
    for sharing in (None, LOST):
        options: dict[str, Any] = {"rounds": 30} if name.startswith("gradient") else {}
        strategy = train(
            build(name, task, epsilon=2.0, delta=delta, sharing=sharing, **options), world
        )
        accuracy.append(float((np.sign(X @ strategy.theta) == y).mean()))
        assert strategy.plan is not None
        noise.append(strategy.plan.mechanisms[0])
    assert accuracy[0] > 0.75
    assert abs(accuracy[1] - accuracy[0]) < 0.03
    server, parties = noise
    assert isinstance(parties, SharedNoise)
    assert 1 <= parties.noise_stddev / server.noise_stddev <= most
    assert parties.stddev_of(10) == pytest.approx(sqrt(10 / 7) * parties.noise_stddev)


@pytest.mark.parametrize("name", SHARING)
def test_the_statement_says_who_sees_what(name: str) -> None:
    plan = shared(name, {}, {}).plan
    facts = RunFacts(run="r", data="d", simulated=True, randomness="seeded", sampler="full batch")
    trust = TrustModel(secure_aggregation="ideal")
    text = " ".join(to_text(make_statement(plan, facts=facts, trust=trust)).split())
    assert "nobody sees a sum without noise" in text
    assert "every sum of at least 8 of the 10 parties, even if 1 of them" in text
    assert "skellam shares" in text
    assert "it sees exact sums" not in text


def test_the_default_is_noise_at_the_server() -> None:
    for name in SHARING:
        plan = build(name, TASK).plan
        assert plan is not None
        assert plan.noise_at == "server"
    known = {name for name, info in strategies.STRATEGIES.items() if info.shares}
    assert known == {*SHARING, *OF_PARTIES, LINEAR}
