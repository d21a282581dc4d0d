from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product
from math import comb

import numpy as np
import pytest

from fedpriv.secagg import Mode, Parameters
from fedpriv.secagg.graph import choose_holders, owners_of, partners
from fedpriv.secagg.thresholds import COMPLETE, _disconnected
from tests.secagg.cohort import Cohort, Dice
from tests.statistical import assert_counts_follow


@pytest.mark.parametrize(
    ("parties", "expected"), [(200, (34, 19)), (500, (42, 24)), (1000, (48, 27))]
)
def test_the_finder_reproduces_the_specified_values(
    parties: int, expected: tuple[int, int]
) -> None:
    """10 % corrupt, 10 % drop-out, σ = 40, η = 20."""
    sparse = Parameters.plan(mode=Mode.SEMI_HONEST, parties=parties)
    assert (sparse.holders, sparse.threshold) == expected
    assert sparse.minimum == parties - parties // 10
    assert not sparse.complete
    active = Parameters.plan(mode=Mode.ACTIVE, parties=parties)
    assert active.complete
    assert active.threshold == (parties + parties // 10) // 2 + 1


TABLE = {  # m: thresholds for c = 1, 2, 3, None where no sum is safe; then c, d, minimum by default
    3: ((3, None), (1, 0, 3)),
    4: ((3, 4, None), (1, 1, 3)),
    5: ((4, 4, 5), (1, 1, 4)),
    6: ((4, 5, 5), (1, 1, 5)),
    7: ((5, 5, 6), (1, 1, 6)),
    8: ((5, 6, 6), (1, 1, 7)),
    9: ((6, 6, 7), (1, 1, 8)),
    10: ((6, 7, 7), (1, 1, 9)),
    20: ((11, 12, 12), (2, 2, 18)),
}


@pytest.mark.parametrize("parties", TABLE)
def test_small_consortia_are_planned_for_a_colluder(parties: int) -> None:
    thresholds, by_default = TABLE[parties]
    for colluders, threshold in enumerate(thresholds, start=1):
        if threshold is None:
            with pytest.raises(ValueError, match="Allow fewer of either"):
                Parameters.plan(mode="active", parties=parties, corrupt=colluders / parties)
            continue
        planned = Parameters.plan(
            mode="active", parties=parties, corrupt=colluders / parties, dropout=0.0
        )
        assert (planned.colluders, planned.threshold) == (colluders, threshold)
    planned = Parameters.plan(mode="active", parties=parties)
    assert (planned.colluders, planned.missing, planned.minimum) == by_default


def test_nobody_colludes_only_if_that_is_said() -> None:
    assert Parameters.plan(mode="active", parties=5, corrupt=0.0).colluders == 0
    assert Parameters.plan(mode="active", parties=5, corrupt=1e-9).colluders == 1


def two_openings(m: int, c: int, t: int, minimum: int) -> bool:
    """Whether a server with c parties can open one round over two sets, by trying them all.

    An honest party of both sets signs one of them. Each set needs t signatures of its members.
    """
    parties = range(m)
    sets = [set(each) for k in range(minimum, m + 1) for each in combinations(parties, k)]
    for one, other in combinations(sets, 2):
        both = one & other
        lent, own, others = (len(part & set(range(c))) for part in (both, one, other))
        shared = len(both) - lent
        alone, elsewhere = len(one - other) - (own - lent), len(other - one) - (others - lent)
        # The colluders sign everything; `shared` honest parties are dealt out between the sets.
        need = max(0, t - own - alone), max(0, t - others - elsewhere)
        if sum(need) <= shared:
            return True
    return False


@pytest.mark.parametrize("m", range(3, 8))
def test_the_rule_of_active_mode_is_exact(m: int) -> None:
    """Against every pair of sets; a weaker rule lets one pass, a stronger one forbids too much."""
    for c, t in product(range(m), range(1, m + 1)):
        if t <= c:
            continue
        for minimum in range(max(t, c + 2), m + 1):
            values = {"roster": m, "parties": m, "holders": m, "minimum": minimum}
            broken = two_openings(m, c, t, minimum)
            assert broken == (2 * t <= m + c and minimum < m)
            if 2 * t > m + c:
                Parameters(mode=Mode.ACTIVE, colluders=c, threshold=t, **values)
                continue
            with pytest.raises(ValueError, match="opened over two sets"):
                Parameters(mode=Mode.ACTIVE, colluders=c, threshold=t, **values)


def test_a_plan_says_what_it_tolerates() -> None:
    assert Parameters.plan(mode="active", parties=5).sentence() == (
        "5 parties, active. Tolerates 1 party colluding with the server and 1 missing. With 2 "
        "missing the run stops and nothing is revealed. No sum of fewer than 4."
    )


@pytest.mark.parametrize("parties", range(2, COMPLETE + 1, 9))
@pytest.mark.parametrize("corrupt", [0.0, 0.1, 0.25])
def test_a_complete_graph_meets_its_two_inequalities(parties: int, corrupt: float) -> None:
    dropout = 0.1
    active = Parameters.plan(mode="active", parties=parties, corrupt=corrupt, dropout=dropout)
    assert active.complete
    assert active.threshold > (parties + active.colluders) / 2
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
    with pytest.raises(ValueError, match="minimum must lie between 56"):
        Parameters.plan(mode="active", parties=100, minimum=55)


def test_active_mode_is_for_a_complete_graph() -> None:
    """In a sparse one a party that is left out of every list is left out of the opened sum."""
    with pytest.raises(ValueError, match="holders must be all 20 parties in active mode"):
        replace(sparse().parameters, mode=Mode.ACTIVE)
    with pytest.raises(ValueError, match="at most 1024 parties"):
        Parameters.plan(mode="active", parties=1025)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"parties": 1, "holders": 1, "threshold": 1}, "2 ≤ parties ≤ roster"),
        ({"parties": 11}, "2 ≤ parties ≤ roster"),
        ({"roster": 70_000}, "2 ≤ parties ≤ roster"),
        ({"colluders": -1}, "colluders must be an integer of at least 0"),
        ({"colluders": 6}, "threshold must exceed colluders = 6"),
        ({"colluders": 2}, "must exceed .roster . colluders. / 2 = 6"),
        ({"roster": 12}, "must exceed .roster . colluders. / 2 = 6"),
        ({"threshold": 6}, "threshold ≤ holders ≤ parties"),
        ({"holders": 11}, "threshold ≤ holders ≤ parties"),
        ({"threshold": 5}, "must exceed .roster . colluders. / 2 = 5"),
        ({"holders": 10, "threshold": 9, "minimum": 8}, "minimum must lie between"),
        ({"minimum": 11}, "minimum must lie between"),
        ({"threshold": 0}, "threshold must be an integer of at least 1"),
    ],
)
def test_numbers_that_cannot_protect_are_refused(change: dict[str, int], rule: str) -> None:
    values = {"roster": 10, "colluders": 0, "parties": 10, "holders": 10, "threshold": 6}
    values |= {"minimum": 6, **change}
    if change == {"threshold": 6}:
        values["holders"] = 5
    with pytest.raises(ValueError, match=rule):
        Parameters(mode=Mode.ACTIVE, **values)


def test_no_sum_of_one_honest_party_and_the_colluders_is_opened() -> None:
    """A threshold of c + 1 is enough for secrets, and a sum of so many tells the honest answer."""
    numbers = {"roster": 7, "colluders": 3, "parties": 7, "holders": 7, "threshold": 4}
    assert Parameters(mode=Mode.SEMI_HONEST, **numbers, minimum=5).missing == 2
    with pytest.raises(ValueError, match="minimum must lie between 5"):
        Parameters(mode=Mode.SEMI_HONEST, **numbers, minimum=4)


def test_colluders_and_the_missing_connect_nobody() -> None:
    """The union over all sets that draw all their holders among themselves and the outside."""
    n, outside, k = 60, 20, 10
    honest = n - outside
    expected = sum(
        comb(honest, s) * (Fraction(comb(outside + s - 1, k), comb(n - 1, k)) ** s)
        for s in range(1, honest // 2 + 1)
    )
    assert expected < 1  # else single terms are cut off at 1
    assert _disconnected(n, outside, k) == pytest.approx(float(expected), rel=1e-9)


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
            mode=Mode.SEMI_HONEST,
            roster=parties,
            colluders=0,
            parties=parties,
            holders=holders,
            threshold=4,
            minimum=parties - 2,
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
    found = partners(holders, present)
    owners = owners_of(holders)
    assert set(found) == present
    for party in present:
        expected = ((holders[party] | owners.get(party, set())) & present) - {party}
        assert found[party] == expected
        assert all(party in found[partner] for partner in found[party])
