"""What a strategy draws before the last exchange of a release is drawn once.

How long the rest takes may follow from the draw and the records. Were it drawn again whenever a run
is taken up, whoever interrupts what takes long would choose among draws.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from fedpriv.privacy.randomness import RandomStream
from fedpriv.strategies import STRATEGIES
from tests.federation.worlds import PRIVATE, build
from tests.strategies.every_strategy import ROUNDS, TASK, federation

if TYPE_CHECKING:
    import numpy as np


def drawn_early(name: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether anything was drawn for a release that then needed another exchange."""
    drawn = [0]
    fill = RandomStream._fill

    def counted(self: RandomStream, buffer: np.ndarray) -> np.ndarray:
        drawn[0] += buffer.nbytes
        return fill(self, buffer)

    strategy, parties = build(name, TASK, **ROUNDS.get(name, {})), federation()
    with monkeypatch.context() as patch:
        patch.setattr(RandomStream, "_fill", counted)
        asked: list[tuple[int, object]] = []  # what was drawn when it was asked, the last release
        while (query := strategy.ask()) is not None:
            asked.append((drawn[0], strategy.last_release))
            before = drawn[0]
            answer = parties.sum(query)  # samples, and noise of the parties, are theirs
            drawn[0] = before
            strategy.learn(answer)
    first = asked[0][0] > 0
    return first or any(
        later > earlier and release is last for (earlier, last), (later, release) in pairwise(asked)
    )


@pytest.mark.parametrize("name", [name for name in PRIVATE if not name.startswith("local-")])
def test_what_is_drawn_before_the_last_exchange_is_drawn_once(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert drawn_early(name, monkeypatch) is STRATEGIES[name].one_draw
