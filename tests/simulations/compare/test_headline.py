"""The headline of a comparison claims what the seeds support, and praises no broken promise."""

from fedpriv.simulations.compare.headline import headline
from fedpriv.simulations.compare.rows import Row
from fedpriv.simulations.experiment.file import parse_experiment
from tests.simulations.compare.rows import ALONE, EXACT, GOOD, NOISY, row

STUDY = parse_experiment({"data": {"name": "chem97"}, "strategy": {"name": "pathak"}})


def test_it_names_the_smallest_budget_that_loses_next_to_nothing() -> None:
    rows = [
        EXACT,
        ALONE,
        row("pathak", NOISY, epsilon=0.1),
        row("pathak", GOOD, epsilon=1.0),
        row("pathak", GOOD, epsilon=3.0),
    ]
    told = headline(rows, STUDY, [])
    assert "non-private averaging (77.6 %) is ε = 1: pathak does, and loses 0." in told
    better = [*rows, row("better", [0.786] * 5, epsilon=0.1)]
    told = headline(better, STUDY, [])
    assert "is ε = 0.1: better does, and gains 1.00 points" in told
    assert "loses" not in told


def test_it_says_so_if_nobody_comes_close() -> None:
    rows = [EXACT, row("pathak", NOISY, epsilon=0.1), row("pathak", NOISY, epsilon=1.0)]
    told = headline(rows, STUDY, [])
    assert told.startswith("No strategy is shown to stay within 1 point")
    assert "at any ε up to 1" in told


def test_it_does_not_praise_what_is_not_as_private() -> None:
    """A form that really costs more, another unit, another adjacency, and no privacy at all."""
    fair = row("fair", GOOD, epsilon=3.0)
    for other in (
        {"spent": 5.0},
        {"unit": "party"},
        {"adjacency": "add-remove"},
        {"spent": None},
    ):
        cheat = row("cheat", GOOD, epsilon=0.1, **other)
        if "spent" in other:
            spent = [{**result, "epsilon": other["spent"]} for result in cheat.results]
            cheat = Row.of(spent)
        assert "cheat" not in headline([EXACT, cheat, fair], STUDY, [])
        assert "is ε = 3: fair does" in headline([EXACT, cheat, fair], STUDY, [])
    honest = row("honest", GOOD, epsilon=0.1)
    assert "is ε = 0.1: honest does" in headline([EXACT, honest, fair], STUDY, [])


def test_one_seed_and_a_regression_have_the_first_finding() -> None:
    rows = [row("non-private", [0.7]), row("pathak", [0.7], epsilon=1.0)]
    assert headline(rows, STUDY, ["One seed has none."]) == "One seed has none."
    assert "decide nothing" in headline(rows, STUDY, [])
