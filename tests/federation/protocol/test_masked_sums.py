"""The same integers, masked: what the protocol opens is what the ideal sum is, to the bit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from fedpriv.federation.federation import Sum
from fedpriv.federation.party.party import Party
from fedpriv.secagg import Mode
from tests.federation.worlds import build, linear_task, random_data, streams
from tests.secagg.cohort import Cohort, Play, ideal, small

if TYPE_CHECKING:
    from fedpriv.federation.queries.kinds import Query

SIZES, WIDTH = (20, 35, 8, 12, 50), 3
TASK = linear_task(SIZES, WIDTH, regulariser=0.1)


def answers(query: Query) -> dict[int, np.ndarray]:
    data = random_data(SIZES, WIDTH)
    return {
        index: Party(data.party(index), task=TASK, sampling=streams(index, "party")).answer(query)
        for index in range(len(SIZES))
    }


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("gradient-perturbation", 32),
        ("output-perturbation", 32),
        ("local-output-perturbation", 64),
        ("objective-perturbation", 64),
    ],
)
@pytest.mark.parametrize("dropped", [(), (1, 3)])
def test_a_masked_sum_is_the_ideal_sum_and_releases_the_same_model(
    mode: Mode, name: str, bits: int, dropped: tuple[int, ...]
) -> None:
    one, two = build(name, TASK), build(name, TASK)
    query, again = one.ask(), two.ask()
    assert query is not None
    assert again is not None
    assert query.grid.bits == bits
    own = answers(query)
    masked = Play(Cohort(small(mode)), own).run({2: dropped})
    assert masked.parties == tuple(index for index in range(5) if index not in dropped)
    expected = ideal(own, masked.parties)
    assert (masked.vector == expected).all()
    if name == "objective-perturbation" and dropped:
        return  # a joint fit needs everybody
    sizes = tuple(SIZES[index] for index in masked.parties)
    for strategy, ring in ((one, masked.vector), (two, expected)):
        total = query.grid.decode(ring.astype(query.grid.dtype))
        strategy.learn(Sum(total=total, step=query.grid.step, sizes=sizes))
    assert (one.theta == two.theta).all()


def test_the_server_sees_no_answer_in_the_clear() -> None:
    query = build("gradient-perturbation", TASK).ask()
    assert query is not None
    own = answers(query)
    play = Play(Cohort(small(Mode.SEMI_HONEST)), own)
    play.run()
    seen = [np.asarray(value).tobytes() for message in play.seen for value in _vectors(message)]
    assert seen
    assert not any(answer.tobytes() in seen for answer in own.values())


def _vectors(message: object) -> list[np.ndarray]:
    names = getattr(type(message), "__dataclass_fields__", {})
    values = [getattr(message, name) for name in names]
    return [value for value in values if isinstance(value, np.ndarray)]
