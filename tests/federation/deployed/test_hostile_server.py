"""A server that lies to deployed parties, and a peer beside it: no sum is opened over two sets."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.federation.party.guard import QueryRefused, check_query
from fedpriv.federation.protocol.wire import Announce, Ask
from fedpriv.federation.queries import encoding as codec
from fedpriv.federation.queries.kinds import ErmQuery, GradientQuery
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent
from fedpriv.privacy.mechanisms.shares import NoiseShare
from fedpriv.secagg import FixedPoint
from fedpriv.secagg.errors import TooFewParties
from fedpriv.secagg.messages import Confirm, Confirmations
from fedpriv.simulations.experiment.file import parse_experiment
from tests.federation.deployed.fresh_parties import never
from tests.federation.deployed.villains import (
    COLLUDER,
    RUN,
    Answered,
    Villain,
    clear_of_three,
    colluding,
    shared,
    shares_of_five,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from fedpriv.secagg.messages import Message
    from fedpriv.secagg.numbers.fixed_point import Ring
    from tests.federation.deployed.deployments import Deployment

pytestmark = pytest.mark.usefixtures("any_kind")

# Two sets of survivors, each without one party, for those who are to sign it. Party 4 colludes.
ONE, OTHER = (0, 1, 2, 4), (0, 2, 3, 4)
TOLD = {0: ONE, 1: ONE, 2: OTHER, 3: OTHER}


def given(deployment: Deployment, party: int, query: GradientQuery) -> Ring:
    """What a party answered, from its own disk: what no server should be able to find out."""
    found = Villain(deployment).journal(party).given(query.run)
    assert found is not None
    return found.vector


def revealed(villain: Villain, signatures: Mapping[int, bytes]) -> list[Message]:
    """What the honest parties reveal that signed, when they are shown these signatures."""
    shown = {
        party: Confirmations(run=RUN, round=1, party=party, signatures=signatures)
        for party in signatures
        if party != COLLUDER
    }
    return villain.tell(shown)


def torn(villain: Villain) -> tuple[Answered, list[Message]]:
    """A round up to what is revealed when half of the parties sign one set, and half another.

    The colluder signs both, and reveals all that it has.
    """
    announced = villain.round(4)
    answered = villain.answered(announced, shared(villain))
    assert set(answered.vectors) == set(villain.everybody)
    signed = villain.tell({p: villain.survivors(p, told) for p, told in TOLD.items()})
    signatures = {m.party: m.signature for m in signed if isinstance(m, Confirm)}
    assert signatures.keys() == TOLD.keys()
    reveals: list[Message] = []
    for survivors in (ONE, OTHER):
        signature, reveal = colluding(villain, announced, survivors)
        signers = {p: signatures[p] for p, told in TOLD.items() if told == survivors}
        reveals += [reveal, *revealed(villain, {**signers, COLLUDER: signature})]
    return answered, reveals


def test_a_server_with_one_of_five_parties_opens_no_round_over_two_sets(tmp_path: Path) -> None:
    """With three, five, seven or nine it once could, and read what a single party had sent."""
    villain = Villain(shares_of_five(tmp_path))
    villain.joined()
    answered, reveals = torn(villain)
    assert {reveal.party for reveal in reveals} == {COLLUDER}
    assert len(villain.refusals) == 4
    assert all("3 holders remain of the 4 required" in refusal for refusal in villain.refusals)
    for wanted in (ONE, OTHER, villain.everybody):
        with pytest.raises(TooFewParties):
            answered.opened(reveals, wanted)


def test_it_would_where_everybody_says_that_nobody_colludes(tmp_path: Path) -> None:
    """The twin of the test above: the attack is real, and only the number of colluders stops it."""
    villain = Villain(shares_of_five(tmp_path, colluding=0.0))
    villain.joined()
    answered, reveals = torn(villain)
    assert not villain.refusals
    without_three, without_one = (answered.opened(reveals, each) for each in (ONE, OTHER))
    everybody = answered.opened(reveals, villain.everybody)
    for victim, rest in ((3, without_three), (1, without_one)):
        alone = given(villain.deployment, victim, answered.query)
        np.testing.assert_array_equal(everybody - rest, alone)


def test_one_set_that_all_are_told_of_is_opened(tmp_path: Path) -> None:
    """The attacker's arithmetic is right, and a sum without one party is nothing unusual."""
    villain = Villain(shares_of_five(tmp_path))
    villain.joined()
    announced, query = villain.round(4), shared(villain)
    answered = villain.answered(announced, query)
    signed = villain.tell({p: villain.survivors(p, ONE) for p in ONE if p != COLLUDER})
    signature, reveal = colluding(villain, announced, ONE)
    signatures = {m.party: m.signature for m in signed if isinstance(m, Confirm)}
    reveals = revealed(villain, {**signatures, COLLUDER: signature})
    wanted = np.add.reduce([given(villain.deployment, party, query) for party in ONE])
    np.testing.assert_array_equal(answered.opened([reveal, *reveals], ONE), wanted)


def test_a_run_that_was_joined_in_active_mode_is_not_opened_in_another(tmp_path: Path) -> None:
    """A second run of Flower, whose config says semi-honest, asks for what the first has masked.

    It got one share of everybody from everybody, without a signature.
    """
    villain = Villain(shares_of_five(tmp_path))
    villain.joined()
    villain.answered(villain.round(4), shared(villain))
    lower = villain.deployment.config(run={"secure_aggregation": "semi-honest"})
    for party, told in TOLD.items():
        assert not villain.ask(party, villain.survivors(party, told), config=lower)
    assert len(villain.refusals) == len(TOLD)
    assert all("insists on 'active'" in refusal for refusal in villain.refusals)


@pytest.mark.parametrize("change", [{"dropout": 0.1}, {"least_parties": 5}, {"seed": 1}])
def test_a_run_is_carried_on_under_the_terms_that_it_was_joined_under(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    """Also where the policy would allow the other terms: thresholds follow from them."""
    villain = Villain(shares_of_five(tmp_path, secure_aggregation="semi-honest"))
    assert len(villain.joined()) == 5
    other = villain.deployment.config(run=change)
    announced = villain.round(4)
    invitation = Announce(run=RUN, round=1, party=0, cohort=announced.cohort, minimum=4)
    assert not villain.ask(0, invitation, config=other)
    assert "joined as another experiment" in villain.refusals[-1]
    assert villain.ask(0, invitation)


def test_a_policy_that_got_stricter_holds_for_a_sum_that_is_under_way(tmp_path: Path) -> None:
    villain = Villain(shares_of_five(tmp_path))
    villain.joined()
    villain.answered(villain.round(4), shared(villain))
    villain.deployment.write_party("north", policy={"strategies": ["output-perturbation"]})
    assert not villain.ask(0, villain.survivors(0, range(5)))
    assert "takes part in no run of strategy" in villain.refusals[-1]
    assert villain.ask(1, villain.survivors(1, range(5)))


def test_a_party_has_one_place_in_a_run(tmp_path: Path) -> None:
    """Requests that begin with a record of another run made a party sit down again and again.

    It then signed for one round as many sets of survivors as it was told of. With these signatures
    every party was shown a set of its own, and the sum of two answers opened.
    """
    deployment = shares_of_five(tmp_path)
    decoy = Ask(run=bytes(32), round=0, party=0)
    for villain in (Villain(deployment, beside=(decoy,)), Villain(deployment, after=(decoy,))):
        assert not villain.joined()
        assert villain.refusals == ["MalformedMessage"] * 5
    assert not list((deployment.home("north") / "state" / "seats").glob("*"))


# Experiments.


def test_two_experiments_never_share_the_name_of_their_runs(tmp_path: Path) -> None:
    """Masks cancel between parties that were asked the same: the name stands for the experiment.

    Twelve digits of its hash, as in a simulation, are forged in minutes. One party is then shown an
    experiment with features, all others one whose features are nearly zero.
    """
    villain = Villain(shares_of_five(tmp_path))
    shown = parse_experiment(tomllib.loads(villain.deployment.config()))
    run = villain.host(0).engagement.run
    (digest,) = re.fullmatch(r"gradient-perturbation-([0-9a-f]{64})", run).groups()  # type: ignore[union-attr]
    assert len(digest) == 64
    assert shown.replaced(data={"feature_norm": 1e-15}).run_name != shown.run_name
    query = shared(villain, run=f"gradient-perturbation-{digest[:12]}-1")
    with pytest.raises(QueryRefused, match="of another run"):
        villain.host(0).party.answer(query)


REGRESSION = """
label = "dose"
[columns.dose]
kind = "number"
min = -1
max = 1
[columns.age]
kind = "number"
min = 0
max = 100
"""


def test_a_bound_on_labels_below_the_schemas_is_refused_before_a_record_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether there was an answer told whether a label exceeded the bound, to the last bit."""
    deployment = clear_of_three(tmp_path)
    for path in tmp_path.rglob("schema.toml"):
        path.write_text(REGRESSION)
    monkeypatch.setattr("fedpriv.data.tables.files.read_table", never)
    probing = deployment.config(model={"name": "squared", "label_bound": 0.5})
    with pytest.raises(ValueError, match=r"model\.label_bound must be at least 1"):
        Villain(deployment).host(0, probing)
    allowed = deployment.config(model={"name": "squared", "label_bound": 1.0})
    assert Villain(deployment).host(0, allowed).engagement.task.parties == 3


def minimiser(villain: Villain, tolerance: float) -> ErmQuery:
    return ErmQuery(
        run=villain.host(0).engagement.run,
        round=0,
        grid=FixedPoint(step=2.0**-30, bits=64),
        event=GaussianEvent(relative_noise=10.0, adjacency=Adjacency.REPLACE_ONE),
        regulariser=0.01,
        tolerance=tolerance,
    )


def test_a_tolerance_that_only_some_records_reach_is_refused_before_a_record_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Near what float64 can certify, the records decided whether there was an answer."""
    villain = Villain(clear_of_three(tmp_path))
    certain = villain.host(0).engagement.task.certain_tolerance(0.01)
    with monkeypatch.context() as patched:
        patched.setattr("fedpriv.data.tables.files.read_table", never)
        for tolerance in (1e-15, 0.99 * certain):
            with pytest.raises(QueryRefused, match="would decide whether it answers"):
                villain.host(0).party.answer(minimiser(villain, tolerance))
    assert not list(tmp_path.rglob("*.ledger"))
    with villain.journal(0).held():
        assert villain.host(0).party.answer(minimiser(villain, certain)).size == 3


# Sums over too few.


def test_a_cohort_smaller_than_the_policy_allows_gets_no_keys(tmp_path: Path) -> None:
    villain = Villain(shares_of_five(tmp_path, min_parties=5))
    villain.joined()
    four, five = tuple(range(4)), tuple(range(5))
    for cohort, minimum in (((0, 1), 2), ((0, 1, 2), 3), (four, 4), (four, 5), (five, 4)):
        record = Announce(run=RUN, round=1, party=0, cohort=cohort, minimum=minimum)
        assert not villain.ask(0, record), (cohort, minimum)
    assert villain.ask(0, Announce(run=RUN, round=1, party=0, cohort=five, minimum=5))


def test_a_masked_answer_decodes_its_query_once_and_checks_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    villain = Villain(shares_of_five(tmp_path))
    villain.joined()
    seen: list[str] = []

    def counted(where: str, does: Any) -> None:
        def counting(*arguments: Any) -> Any:
            seen.append(where)
            return does(*arguments)

        monkeypatch.setattr(where, counting)

    counted("fedpriv.federation.queries.encoding.from_bytes", codec.from_bytes)
    counted("fedpriv.federation.deployed.guard.check_query", check_query)
    counted("fedpriv.federation.party.party.check_query", check_query)
    assert len(villain.answered(villain.round(4), shared(villain)).vectors) == 5
    assert {where.rpartition(".")[2]: seen.count(where) for where in seen} == {
        "from_bytes": 5,
        "check_query": 5,
    }
    assert len(seen) == 10


def test_shares_of_noise_that_count_on_more_parties_than_the_masks_are_refused(
    tmp_path: Path,
) -> None:
    """Sized for five, and opened with four: less noise than was paid for."""
    villain = Villain(shares_of_five(tmp_path))
    villain.joined()
    answered = villain.answered(villain.round(4), shared(villain, minimum=5))
    assert not answered.vectors
    assert all("assume 5 parties" in refusal for refusal in villain.refusals)
    assert not list(tmp_path.rglob("*.ledger"))


def test_shares_of_noise_for_fewer_colluders_than_the_masks_are_refused(tmp_path: Path) -> None:
    """The masks allow for two that tell their shares: with noise for one, too little is left."""
    villain = Villain(shares_of_five(tmp_path, colluding=0.4))
    villain.joined()
    answered = villain.answered(villain.round(4), shared(villain))
    assert not answered.vectors
    assert len(villain.refusals) == 5
    assert all("for 1 colluders, but the masks of this sum for 2" in r for r in villain.refusals)
    assert not list(tmp_path.rglob("*.ledger"))
    two = NoiseShare(law="skellam", parameter=1e16, minimum=4, colluders=2)
    villain.run = bytes(32)
    villain.joined()
    assert len(villain.answered(villain.round(4), shared(villain, share=two)).vectors) == 5
