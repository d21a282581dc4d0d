"""The noise that is drawn, against what one record can do, worked out here from the theorems.

For every release: standard deviation = (what the ledger is told, relative to a sensitivity of one)
× (how far one record moves the integers that the noise is added to). The second factor is written
down here a second time, from the papers, and not by calling what the strategies call:

- a sum of gradients clipped to C moves by 2C, or by C if a record is added or removed;
- sums in float32 add twice γ₁₂₉ for each record of the blocks that differ (Higham 2002, §3.1), sums
  of blocks in float64 twice 2γ_n; if the number of records is declared, there may be twice as many,
  and if a hash decides which of them take part, all of them, at other places;
- a certified minimiser moves by 2G/(nλ) + 2τ/λ, and an average by its weight times that;
- a count of what was not clipped, κ·(b − ½) for every record, moves by κ/2 for each that joins or
  leaves; with gradients in units of C, whose quotients are rounded once more, it is one vector;
- rounding to a grid moves each of two sums by half a step a coordinate: √d·step.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, hypot, sqrt
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest

from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.queries.bounds import gradient_sensitivity
from fedpriv.federation.queries.kinds import ErmQuery, GradientQuery
from fedpriv.federation.queries.local_noise import LocalNoise
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.events import GaussianEvent
from fedpriv.privacy.mechanisms import GaussianMechanism, L2LaplaceMechanism
from fedpriv.privacy.mechanisms.mechanism import Mechanism
from fedpriv.privacy.planning.gradient import gradient_plan
from fedpriv.privacy.planning.output import output_plan
from fedpriv.secagg import FixedPoint
from tests.federation.worlds import build, linear_task, random_data, streams

if TYPE_CHECKING:
    from fedpriv.federation.federation import Sum
    from fedpriv.federation.strategy.base import SumStrategy

ONE, TWO = Adjacency.REPLACE_ONE, Adjacency.ADD_REMOVE
SIZES, WIDTH, LAMBDA = (40, 25), 3, 0.01
N = 65
TASK = linear_task(SIZES, WIDTH, regulariser=LAMBDA)
WORLD = VectorizedFederation(random_data(SIZES, WIDTH), task=TASK, sampling=streams(0, "p"))
EVENT = GaussianEvent(adjacency=ONE, relative_noise=1.0)
EXACT = 1e-11  # the same few operations in another order


def gamma(operations: int, unit: float) -> float:
    return operations * unit / (1 - operations * unit)


def clipped_sum(
    clip: float, adjacency: Adjacency, largest: int, *, hashed: float | None = None
) -> float:
    """How far one record moves the computed sum of gradients; ``largest`` is the largest size."""
    apart = 2 * clip if adjacency is ONE else clip
    records = ceil(largest * (hashed or 1) * (1 if adjacency is ONE else 2))
    blocks = min(largest, 128) if adjacency is ONE and hashed is None else records
    rounding = blocks * gamma(129, 2.0**-24) + 2 * records * gamma(records, 2.0**-53)
    return apart + 2 * clip * rounding


class Drawn(NamedTuple):
    """Noise that was drawn, and on how many numbers."""

    mechanism: Mechanism
    width: int


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Drawn]:
    """All noise that is drawn at the server, in order."""
    seen: list[Drawn] = []
    real = Mechanism.release

    def release(self: Mechanism, total: Any, **how: Any) -> Any:
        seen.append(Drawn(self, len(total)))
        return real(self, total, **how)

    monkeypatch.setattr(Mechanism, "release", release)
    return seen


def one_round(strategy: SumStrategy) -> None:
    """Ask and learn until the first round is over."""
    while strategy.round == 0 and (query := strategy.ask()) is not None:
        strategy.learn(WORLD.sum(query))


def charged(strategy: SumStrategy) -> list[float]:
    """The noise that the accounting was told of, relative to a sensitivity of one."""
    plan: Any = strategy.plan
    events = [plan.event(index) for index in range(plan.rounds)]
    return [event.relative_noise for event in events if hasattr(event, "relative_noise")]


GRADIENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "gradient-perturbation": ("gradient-perturbation", {"rounds": 4}),
    "by the textbook": ("gradient-perturbation", {"rounds": 4, "calibration": "textbook"}),
    "sampled": ("gradient-perturbation", {"rounds": 4, "sampling_rate": 0.5}),
    "growing": (
        "gradient-perturbation",
        {"rounds": 4, "sampling_rate": {"first": 0.2, "factor": 2.0, "every": 2}},
    ),
    "agd": ("agd", {"splits": 6}),
    "quantile": ("adaptive-clipping", {"rounds": 5}),
    "coordinate": ("adaptive-clipping", {"rounds": 5, "rule": "coordinate", "clip": 1.0}),
    "quantile of a sample": ("adaptive-clipping", {"rounds": 5, "sampling_rate": 0.5}),
    "learned-protection": ("learned-protection", {}),
}
CLIP = 0.75


SAMPLED = ("sampled", "growing", "quantile of a sample")  # for add-remove adjacency only


@pytest.mark.parametrize(
    ("name", "adjacency"),
    [
        (name, relation)
        for name in GRADIENTS
        for relation in (ONE, TWO)
        if relation is TWO or name not in SAMPLED
    ],
)
def test_noise_on_gradients_is_the_charge_times_what_a_record_can_do(
    name: str, adjacency: Adjacency, drawn: list[Drawn]
) -> None:
    kind, options = GRADIENTS[name]
    strategy = build(kind, TASK, adjacency=adjacency.value, **{"clip": CLIP, **options})
    one_round(strategy)
    plan: Any = strategy.plan
    clip = CLIP if kind != "adaptive-clipping" else 1.0
    moved, width = clipped_sum(clip, adjacency, 40), WIDTH
    if name.startswith("quantile"):
        half = counting_of(strategy) / 2 * (2 if adjacency is ONE else 1)
        quotients = 2 * 40 * (1 if adjacency is ONE else 2) * 2.0**-52
        moved, width = hypot(moved + quotients, half), WIDTH + 1
    moved += sqrt(width) * plan.step
    noise = [
        (made.mechanism.noise_stddev, told)
        for made, told in zip(drawn, charged(strategy), strict=False)
        if made.width == width
    ]
    assert noise
    for stddev, told in noise:
        assert stddev == pytest.approx(told * moved, rel=EXACT)


def counting_of(strategy: SumStrategy) -> float:
    """κ, as the parties are told it."""
    query: Any = build(strategy.name, TASK, adjacency=strategy.plan.adjacency.value, rounds=5).ask()  # type: ignore[union-attr]
    return float(query.counting)


def test_one_record_does_change_a_count_by_one() -> None:
    """So that half the noise would not do: a short gradient and a long one, exchanged."""
    counts = []
    for length in (0.1, 1.0):  # slope 1/2 at zero, so gradients of length 0.05 and 0.5
        data = random_data(SIZES, WIDTH)
        X = data.dataset.train.X.copy()
        X[0] = (length * 0.999, 0, 0)
        changed = replace(data.dataset.train, X=X)
        world = VectorizedFederation(
            replace(data, dataset=replace(data.dataset, train=changed)),
            task=TASK,
            sampling=streams(0, "p"),
        )
        query = GradientQuery(
            run="r",
            round=0,
            grid=FixedPoint(step=2.0**-20),
            event=EVENT,
            theta=np.zeros(WIDTH),
            clip_norm=0.2,
            counting=1.0,
        )
        counts.append(float(world.sum(query).value[-1]))
    assert counts[0] - counts[1] == 1


@pytest.mark.parametrize("largest", [1, 100, 500])
@pytest.mark.parametrize("hashed", [None, 1.25, 1.0001, 1.0])
def test_a_party_may_hold_more_records_than_its_size_says(
    largest: int, hashed: float | None
) -> None:
    """Declared sizes, and hashes that move records: then all its blocks may round anew."""
    task = replace(
        linear_task((largest, 1), WIDTH), headroom=hashed or 1.0, in_place=hashed is None
    )
    for adjacency in (ONE, TWO):
        found = gradient_sensitivity(task, clip_norm=2.0, adjacency=adjacency)
        expected = clipped_sum(2.0, adjacency, largest, hashed=hashed)
        assert found == pytest.approx(expected, rel=EXACT)
    # 1000·γ₁₂₉ is 0.77 % of C, twice; counted once it would be half of that.
    if largest == 500 and hashed is None:
        assert found / 2.0 - 1 == pytest.approx(2 * 1000 * 129 * 2.0**-24, rel=1e-4)


COARSE = FixedPoint(step=2.0**-6)


@pytest.mark.parametrize("weights", ["equal", "proportional"])
@pytest.mark.parametrize("size", SIZES)
def test_local_noise_covers_the_grid(weights: Any, size: int) -> None:
    """On a grid so coarse that rounding is a good part of what noise has to hide."""
    noise = LocalNoise(law="gaussian", relative_noise=3.0, adjacency=ONE)
    common: Any = {"run": "r", "round": 0, "grid": COARSE, "event": EVENT} | {
        "weights": weights,
        "local": noise,
    }
    rounding = sqrt(3) * 2.0**-6
    gradient = GradientQuery(theta=np.zeros(WIDTH), clip_norm=0.05, **common)
    factor = 25 / size if weights == "equal" else 1.0
    mechanism = gradient.local_mechanism(TASK, size)
    assert isinstance(mechanism, GaussianMechanism)
    expected = clipped_sum(0.05, ONE, 40) * factor + rounding
    assert mechanism.sensitivity == pytest.approx(expected, rel=EXACT)
    assert mechanism.stddev == pytest.approx(3.0 * expected, rel=EXACT)
    minimiser = ErmQuery(regulariser=2.0, tolerance=1e-3, **common)
    mechanism = minimiser.local_mechanism(TASK, size)
    weight = 1 / 2 if weights == "equal" else size / N
    expected = weight * (2 / (size * 2.0) + 2 * 1e-3 / 2.0) + rounding
    assert mechanism is not None
    assert mechanism.noise_stddev == pytest.approx(3.0 * expected, rel=EXACT)


def test_the_grid_is_paid_for_in_plans() -> None:
    """Steps of a fiftieth, in 16 dimensions: 0.08 beside 2C = 0.4 and 2G/(Nλ) = 0.1."""
    common: Any = {"sizes": (100, 300), "dimension": 16, "step": 0.02}
    budget = Budget(epsilon=1.0, delta=1e-6)
    gradients = gradient_plan(
        budget=budget, rounds=3, sensitivity=0.4, clip_norm=0.2, adjacency="replace-one", **common
    )
    for index, mechanism in enumerate(gradients.mechanisms):
        event: Any = gradients.event(index)
        assert mechanism.noise_stddev == pytest.approx(event.relative_noise * 0.48, rel=EXACT)
    for law in ("gaussian", "l2-laplace", "l1-laplace"):
        models = output_plan(
            budget=budget if law == "gaussian" else Budget(epsilon=1.0, delta=0.0),
            sensitivity=0.1,
            law=law,
            **common,
        )
        (mechanism,) = models.mechanisms
        event = models.event(0)
        # √(d+1)·Δ/ε is the spread of L2-Laplace noise a coordinate; L1-Laplace has scale √d·Δ/ε.
        told = {
            "gaussian": getattr(event, "relative_noise", 0.0),
            "l2-laplace": sqrt(17),
            "l1-laplace": sqrt(2) * 4,
        }[law]
        assert mechanism.noise_stddev == pytest.approx(told * 0.18, rel=EXACT)


@pytest.mark.parametrize("weights", ["equal", "proportional"])
@pytest.mark.parametrize("silent", [(), (1,)])
def test_noise_on_an_average_covers_solver_grid_and_the_parties_that_answered(
    weights: str, silent: tuple[int, ...], drawn: list[Drawn]
) -> None:
    strategy = build("output-perturbation", TASK, weights=weights, tolerance=1e-3)
    query = strategy.ask()
    assert query is not None
    sizes = [n for party, n in enumerate(SIZES) if party not in silent]
    answer: Sum = replace(WORLD.sum(query), sizes=tuple(sizes))
    strategy.learn(answer)
    share = {n: 1 / 2 if weights == "equal" else n / 65 for n in sizes}
    moved = max(share[n] * (2 / (n * LAMBDA) + 2 * 1e-3 / LAMBDA) for n in sizes)
    moved += sqrt(3) * query.grid.step
    ((mechanism, width),) = drawn
    (told,) = charged(strategy)
    assert width == WIDTH
    assert mechanism.noise_stddev == pytest.approx(told * moved, rel=EXACT)


@pytest.mark.parametrize("weights", ["equal", "proportional"])
@pytest.mark.parametrize("adjacency", [ONE, TWO])
def test_a_joint_fit_is_one_party_that_holds_all_records(
    weights: str, adjacency: Adjacency, drawn: list[Drawn]
) -> None:
    """One fit, one certificate: 2G/(Nλ) + 2τ/λ, and no party's weight makes the second less.

    A record that joins or leaves moves it by G/(Nλ), and the certificate costs the same.
    """
    strategy = build(
        "output-perturbation",
        TASK,
        fit="joint",
        weights=weights,
        tolerance=1e-3,
        adjacency=adjacency.value,
    )
    one_round(strategy)
    plan: Any = strategy.plan
    gradients = 2 if adjacency is ONE else 1
    moved = gradients / (65 * LAMBDA) + 2 * 1e-3 / LAMBDA + sqrt(3) * plan.step
    ((mechanism, _),) = drawn
    (told,) = charged(strategy)
    assert mechanism.noise_stddev == pytest.approx(told * moved, rel=EXACT)
    assert (plan.parties, plan.records, plan.smallest_party) == (2, 65, 25)


def test_laplace_noise_on_an_average_covers_the_same(drawn: list[Drawn]) -> None:
    strategy = build("output-perturbation", TASK, law="l2-laplace", delta=0.0, tolerance=1e-3)
    one_round(strategy)
    plan: Any = strategy.plan
    ((mechanism, _),) = drawn
    assert isinstance(mechanism, L2LaplaceMechanism)
    # 2G/(Nλ) for either party, and 2τ/λ times the weight of the larger one.
    expected = 2 / (65 * LAMBDA) + 40 / 65 * 2 * 1e-3 / LAMBDA + sqrt(3) * plan.step
    assert mechanism.sensitivity == pytest.approx(expected, rel=EXACT)
    assert mechanism.epsilon == 1.0
