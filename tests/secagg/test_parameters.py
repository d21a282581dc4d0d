import numpy as np
import pytest

from fedpriv.secagg import Mode, Parameters
from fedpriv.secagg.graph import choose_holders, owners_of, partners
from fedpriv.secagg.thresholds import COMPLETE
from tests.secagg.cohort import Cohort, Dice
from tests.statistical import assert_counts_follow


@pytest.mark.parametrize(
    ("parties", "curious", "active"),
    [(200, (34, 19), (56, 39)), (500, (42, 24), (82, 57)), (1000, (48, 27), (96, 67))],
)
def test_the_finder_reproduces_the_specified_values(
    parties: int, curious: tuple[int, int], active: tuple[int, int]
) -> None:
    """10 % corrupt, 10 % drop-out, σ = 40, η = 20."""
    for mode, expected in ((Mode.SEMI_HONEST, curious), (Mode.ACTIVE, active)):
        planned = Parameters.plan(mode=mode, parties=parties)
        assert (planned.holders, planned.threshold) == expected
        assert planned.minimum == parties - parties // 10
        assert not planned.complete


@pytest.mark.parametrize("parties", range(2, COMPLETE + 1, 9))
@pytest.mark.parametrize("corrupt", [0.0, 0.1, 0.3])
def test_a_complete_graph_meets_its_two_inequalities(parties: int, corrupt: float) -> None:
    dropout = 0.1
    active = Parameters.plan(mode="active", parties=parties, corrupt=corrupt, dropout=dropout)
    assert active.complete
    assert active.threshold > (1 + corrupt) * parties / 2
    assert active.threshold <= parties - int(dropout * parties)
    curious = Parameters.plan(mode="semi-honest", parties=parties, corrupt=corrupt, dropout=dropout)
    assert corrupt * parties < curious.threshold <= active.threshold


def test_the_benchmark_cohort_has_the_usual_threshold() -> None:
    assert Parameters.plan(mode="semi-honest", parties=100).threshold == 51
    assert Parameters.plan(mode="active", parties=100).threshold == 56


@pytest.mark.parametrize(
    ("parties", "corrupt", "dropout"), [(10, 0.5, 0.5), (100, 0.1, 0.5), (200, 0.34, 0.34)]
)
def test_impossible_demands_are_refused(parties: int, corrupt: float, dropout: float) -> None:
    with pytest.raises(ValueError, match="Allow fewer of either"):
        Parameters.plan(mode="active", parties=parties, corrupt=corrupt, dropout=dropout)


def test_a_minimum_can_be_raised_and_not_lowered() -> None:
    raised = Parameters.plan(mode="active", parties=100, minimum=90)
    assert raised.minimum == 90
    with pytest.raises(ValueError, match="minimum must be at least 56"):
        Parameters.plan(mode="active", parties=100, minimum=55)
    with pytest.raises(ValueError, match="minimum must be at least 180"):
        Parameters.plan(mode="active", parties=200, minimum=100)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"parties": 1, "holders": 1, "threshold": 1}, "parties must lie in"),
        ({"parties": 70_000}, "parties must lie in"),
        ({"threshold": 6}, "threshold ≤ holders ≤ parties"),
        ({"holders": 11}, "threshold ≤ holders ≤ parties"),
        ({"threshold": 5}, "must exceed holders / 2 = 5"),
        ({"holders": 10, "threshold": 9, "minimum": 8}, "minimum must lie between"),
        ({"minimum": 11}, "minimum must lie between"),
        ({"threshold": 0}, "threshold must be an integer of at least 1"),
    ],
)
def test_numbers_that_cannot_protect_are_refused(change: dict[str, int], rule: str) -> None:
    values = {"parties": 10, "holders": 10, "threshold": 6, "minimum": 6, **change}
    if change == {"threshold": 6}:
        values["holders"] = 5
    with pytest.raises(ValueError, match=rule):
        Parameters(mode=Mode.ACTIVE, **values)


@pytest.mark.parametrize(("name", "value"), [("corrupt", 1.0), ("dropout", -0.1)])
def test_fractions_must_be_fractions(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} must lie in"):
        Parameters.plan(mode="active", parties=10, **{name: value})  # type: ignore[arg-type]


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="trusting"):
        Parameters.plan(mode="trusting", parties=10)


def sparse(parties: int = 20, holders: int = 6) -> Cohort:
    return Cohort(
        Parameters(
            mode=Mode.ACTIVE, parties=parties, holders=holders, threshold=4, minimum=parties - 2
        )
    )


def test_in_a_small_cohort_everybody_holds_everybodys_shares() -> None:
    cohort = Cohort(Parameters.plan(mode="active", parties=5))
    assert choose_holders(cohort.announced(), 2, Dice("unused")) == (0, 1, 2, 3, 4)


def test_holders_are_drawn_uniformly_among_the_others() -> None:
    """Each of 19 others is one of 6 holders with probability 6/19. False failure below 1e-9."""
    announced, entropy, draws = sparse().announced(), Dice("draws"), 4000
    counts = np.zeros(20, dtype=np.int64)
    for _ in range(draws):
        chosen = choose_holders(announced, 7, entropy)
        assert len(set(chosen)) == 6
        assert list(chosen) == sorted(chosen)
        counts[list(chosen)] += 1
    assert counts[7] == 0
    for other in set(range(20)) - {7}:
        pair = np.array([counts[other], draws - counts[other]])
        assert_counts_follow(pair, np.array([6 / 19, 13 / 19]), false_failure=1e-9 / 19)


def test_partners_are_symmetric_and_include_all_holders() -> None:
    announced = sparse().announced()
    holders = {i: frozenset(choose_holders(announced, i, Dice("h", i))) for i in range(20)}
    present = set(range(20)) - {3, 8}
    neighbours = partners(holders, present)
    owners = owners_of(holders)
    assert set(neighbours) == present
    for party in present:
        expected = ((holders[party] | owners.get(party, set())) & present) - {party}
        assert neighbours[party] == expected
        assert all(party in neighbours[partner] for partner in neighbours[party])
