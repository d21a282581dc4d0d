"""What stands in an experiment is set by --set: whoever writes it as an option is told how."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.simulations.conftest import Command


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "quickstart", "--epsilon", "0.5"), "Write --set privacy.epsilon=0.5"),
        (("run", "quickstart", "--rounds=5"), "Write --set strategy.rounds=5"),
        (("compare", "chem97", "--sampling-rate"), "Write --set strategy.sampling_rate=…"),
        (("run", "quickstart", "--unknown", "1"), "No such option"),
    ],
)
def test_a_key_that_is_given_as_an_option_is_told_its_place(
    fedpriv: Command, arguments: tuple[str, ...], words: str
) -> None:
    done = fedpriv(*arguments)
    assert done.code == 2
    assert words in " ".join(done.err.replace("│", " ").split())


def test_a_misspelt_experiment_is_refused_with_the_nearest(fedpriv: Command) -> None:
    assert "Did you mean 'quickstart'?" in fedpriv("run", "quickstrat").message
