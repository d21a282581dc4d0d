"""Hostile fits: a joint fit that fails, for whatever reason, is not drawn again for one payment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fedpriv.privacy.planning.objective.objective import ObjectiveMechanism
from tests.audit.neighbours import INFERENCE, OBJECTIVE, Case, table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.audit.laboratory import Laboratory


@pytest.mark.parametrize("strategy", [OBJECTIVE, INFERENCE], ids=lambda strategy: strategy["name"])
def test_a_fit_of_more_records_than_there_is_room_for_is_spent(
    strategy: dict[str, Any],
    laboratory: Laboratory,
    fedpriv: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 50 where 3 were declared. Whether a sum has room depends on where the fit looks, so on b.

    Whoever tried again until one fits would release with another law of b.
    """
    drawn = []
    draw = ObjectiveMechanism.draw_linear

    def counted(self: ObjectiveMechanism, *facts: Any) -> Any:
        drawn.append(self)
        return draw(self, *facts)

    monkeypatch.setattr(ObjectiveMechanism, "draw_linear", counted)
    scaled = {"scaling": "divide"} if strategy is INFERENCE else {}
    case = Case(
        name="crowd", strategy=strategy, adjacency="add-remove", data={"records": 3, **scaled}
    )
    rows = [{**row, "outcome": "yes", "age": "100", "dose": "1"} for row in table("binary")]
    watch = laboratory.run(case, rows, tmp_path / "one")
    assert watch.code == 2
    assert "Nothing was encoded" in watch.said
    with pytest.raises(RuntimeError, match="the budget of the release is spent"):
        fedpriv("run", "--resume", watch.directory)
    assert len(drawn) == 1
