"""A server that lies to deployed parties, a peer beside it, and the disk between two messages."""

from __future__ import annotations

import json
import re
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pytest

from fedpriv.federation.deployed.journal import Journal
from fedpriv.federation.party.guard import QueryRefused, check_query
from fedpriv.federation.party.party import Party
from fedpriv.federation.protocol.wire import Announce, Ask, Join, Reply, Request
from fedpriv.federation.queries import encoding as codec
from fedpriv.federation.queries.bounds import share_mechanism
from fedpriv.federation.queries.kinds import ErmQuery, GradientQuery
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent
from fedpriv.privacy.mechanisms.shares import NoiseShare
from fedpriv.secagg import FixedPoint, Round, Server
from fedpriv.secagg.errors import SecureAggregationError, TooFewParties
from fedpriv.secagg.messages import (
    Confirm,
    Confirmations,
    MaskedAnswer,
    Reveal,
    Survivors,
)
from fedpriv.secagg.party_state import Answered as AnsweredState
from fedpriv.secagg.primitives import binding
from fedpriv.secagg.primitives.shamir import SHARE_BYTES
from fedpriv.secagg.recovery import Puzzle, recover
from fedpriv.secagg.server_state import AnswersCollected
from fedpriv.simulations.engines.parties import protection
from fedpriv.simulations.experiment.file import parse_experiment
from tests.federation.deployed.deployments import FIVE, HELD, Deployment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from fedpriv.federation.deployed.host import DeployedHost
    from fedpriv.federation.queries.kinds import Query
    from fedpriv.secagg.messages import Message
    from fedpriv.secagg.numbers.fixed_point import Ring
    from fedpriv.secagg.round import Bound
    from fedpriv.secagg.server_state import SharesCollected

pytestmark = pytest.mark.usefixtures("any_kind")
RUN = b"v" * 32


@dataclass
class Villain:
    """A server that says to each party what it likes, and reads what comes back.

    ``beside`` and ``after`` go into every request, before and after what is asked.
    """

    deployment: Deployment
    run: bytes = RUN
    beside: tuple[Bound, ...] = ()
    after: tuple[Bound, ...] = ()
    refusals: list[str] = field(default_factory=list)

    @property
    def everybody(self) -> range:
        return range(len(self.deployment.names))

    def host(self, number: int, config: str | None = None) -> DeployedHost:
        found: Any = self.deployment.host(self.deployment.names[number], config)
        return found  # type: ignore[no-any-return]

    def ask(
        self,
        number: int,
        *records: Bound,
        query: GradientQuery | bytes = b"",
        config: str | None = None,
    ) -> tuple[Bound, ...]:
        data = query if isinstance(query, bytes) else codec.to_bytes(query)
        request = Request(messages=(*self.beside, *records, *self.after), query=data).to_bytes()
        try:
            reply = Reply.from_bytes(self.host(number, config).handle(request))
        except SecureAggregationError as error:  # a worker turns it into a failed task
            self.refusals.append(type(error).__name__)
            return ()
        if reply.refusal:
            self.refusals.append(reply.refusal)
        return reply.messages

    def journal(self, number: int) -> Journal:
        return Journal(self.deployment.home(self.deployment.names[number]) / "state")

    def tell(self, boxes: Mapping[int, Bound], **options: Any) -> list[Message]:
        found: list[Any] = []
        for number, box in boxes.items():
            found.extend(self.ask(number, box, **options))
        return found

    def joined(self, **options: Any) -> list[Message]:
        return self.tell(
            {number: Join(run=self.run, round=0, party=0) for number in self.everybody}, **options
        )

    def round(self, minimum: int) -> Round:
        config = parse_experiment(tomllib.loads(self.deployment.config()))
        roster = self.deployment.roster.identities
        parameters = protection(config).parameters(len(roster), roster=len(roster), minimum=minimum)
        return Round(
            run=self.run,
            number=1,
            cohort=tuple(self.everybody),
            roster=roster,
            parameters=parameters,
        )

    def answered(self, announced: Round, query: GradientQuery) -> Answered:
        """A round, honestly, up to the masked answers of everybody."""
        server, minimum = Server(announced=announced), announced.parameters.minimum
        keys, lists = server.collect_keys(
            self.tell(
                {
                    number: Announce(
                        run=self.run,
                        round=1,
                        party=number,
                        cohort=announced.cohort,
                        minimum=minimum,
                    )
                    for number in self.everybody
                }
            )
        )
        shares, deliveries = server.collect_shares(keys, self.tell(lists))
        answers = self.tell(deliveries, query=query)
        return Answered(
            server=server,
            shares=shares,
            vectors={a.party: a.vector for a in answers if isinstance(a, MaskedAnswer)},
            query=query,
        )

    def survivors(self, number: int, survivors: Sequence[int]) -> Survivors:
        return Survivors(run=self.run, round=1, party=number, survivors=tuple(survivors))


@dataclass(frozen=True, kw_only=True)
class Answered:
    """Masked answers of a round, one by one, as an honest server never keeps them."""

    server: Server
    shares: SharesCollected
    vectors: Mapping[int, Ring]
    query: GradientQuery

    def opened(self, reveals: Sequence[Message], wanted: Sequence[int]) -> Ring:
        """The sum over ``wanted`` alone, from whatever shares were revealed."""
        state = AnswersCollected(
            shares=self.shares,
            survivors=frozenset(wanted),
            masked=np.add.reduce([self.vectors[party] for party in wanted]),
            about=codec.to_bytes(self.query),
            rejected=(),
        )
        shares: dict[int, dict[int, bytes]] = {owner: {} for owner in self.vectors}
        for message in reveals:
            assert isinstance(message, Reveal)
            for owner, share in message.seed_shares.items():
                if owner in wanted:
                    shares[owner][message.party] = share
            for owner, share in message.key_shares.items():
                if owner not in wanted:
                    shares[owner][message.party] = share
        puzzles = [
            Puzzle(owner=owner, shares=parts, fits=self.server._recogniser(state, owner))
            for owner, parts in shares.items()
        ]
        threshold = self.server.announced.parameters.threshold
        return self.server._unmasked(state, recover(puzzles, threshold)[0])


def shares_of_five(folder: Path, *, colluding: float = 0.1, **policy: Any) -> Deployment:
    """One of them may be missing; by default, another may collude with the server."""
    folder.chmod(0o700)
    return Deployment(
        folder=folder,
        names=FIVE,
        sizes=HELD,
        policy={"noise_at": "parties", "min_parties": 4, "colluding": colluding, **policy},
        experiment={
            "privacy": {"noise_at": "parties", "colluding": colluding},
            "run": {"least_parties": 4, "secure_aggregation": "active", "dropout": 0.2},
        },
    )


def clear_of_three(folder: Path) -> Deployment:
    """Parties that answer in the clear: what is tried here, masks do not hide."""
    folder.chmod(0o700)
    return Deployment(
        folder=folder,
        policy={"secure_aggregation": "off"},
        experiment={"run": {"secure_aggregation": "off"}},
    )


def never(*_: object, **__: object) -> NoReturn:
    raise AssertionError("a record was read")


def shared(villain: Villain, *, minimum: int = 4, **changes: Any) -> GradientQuery:
    """A query whose noise the parties bring."""
    engagement = villain.host(0).engagement
    query = GradientQuery(
        run=engagement.run,
        round=0,
        grid=FixedPoint(step=2.0**-20, bits=64),
        event=GaussianEvent(relative_noise=10.0, adjacency=Adjacency.REPLACE_ONE),
        theta=np.full(3, 0.1),
        clip_norm=1.0,
        share=NoiseShare(law="skellam", parameter=1e16, minimum=minimum, colluders=1),
    )
    query = replace(query, **changes)
    mechanism = share_mechanism(query, engagement.task)
    assert mechanism is not None
    return replace(query, event=mechanism.event())


# Two sets of survivors, each without one party, for those who are to sign it. Party 4 colludes.
ONE, OTHER = (0, 1, 2, 4), (0, 2, 3, 4)
TOLD = {0: ONE, 1: ONE, 2: OTHER, 3: OTHER}
COLLUDER = 4


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


def colluding(villain: Villain, announced: Round, survivors: Sequence[int]) -> tuple[bytes, Reveal]:
    """The signature of the colluder under any set, and its shares as if that had been opened."""
    keys, journal = villain.host(COLLUDER).keys, villain.journal(COLLUDER)
    assert keys is not None
    with journal.held():
        _, state = journal.memory(RUN).state(1)
    assert isinstance(state, AnsweredState)
    reveal = Reveal(
        run=RUN,
        round=1,
        party=COLLUDER,
        seed_shares={p: state.held[p][:SHARE_BYTES] for p in survivors},
        key_shares={p: s[SHARE_BYTES:] for p, s in state.held.items() if p not in survivors},
    )
    content = binding.consent(announced, COLLUDER, tuple(survivors))
    return keys.identity.sign(content), reveal


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
    assert all("count on 5 parties" in refusal for refusal in villain.refusals)
    assert not list(tmp_path.rglob("*.ledger"))


def test_shares_of_noise_for_fewer_colluders_than_the_masks_are_refused(tmp_path: Path) -> None:
    """The masks allow for two that tell their shares: with noise for one, too little is left."""
    villain = Villain(shares_of_five(tmp_path, colluding=0.4))
    villain.joined()
    answered = villain.answered(villain.round(4), shared(villain))
    assert not answered.vectors
    assert len(villain.refusals) == 5
    assert all("for 1 colluders, and the masks of this sum for 2" in r for r in villain.refusals)
    assert not list(tmp_path.rglob("*.ledger"))
    two = NoiseShare(law="skellam", parameter=1e16, minimum=4, colluders=2)
    villain.run = bytes(32)
    villain.joined()
    assert len(villain.answered(villain.round(4), shared(villain, share=two)).vectors) == 5


# Two answers for one payment.


def gradient(villain: Villain, round_: int = 0, **changes: Any) -> GradientQuery:
    query = GradientQuery(
        run=villain.host(0).engagement.run,
        round=round_,
        grid=FixedPoint(step=2.0**-20, bits=64),
        event=GaussianEvent(relative_noise=10.0, adjacency=Adjacency.REPLACE_ONE),
        theta=np.full(3, 0.1),
        clip_norm=1.0,
    )
    return replace(query, **changes)


def answer(villain: Villain, query: Query) -> Ring:
    """Of a fresh process."""
    with villain.journal(0).held():
        return villain.host(0).party.answer(query)


def test_a_release_that_was_begun_is_answered_to_the_query_that_began_it_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A party that failed after it paid answers that query when it is asked again, and no other."""
    villain = Villain(clear_of_three(tmp_path))
    with monkeypatch.context() as patched:
        patched.setattr("fedpriv.federation.party.party.Party.compute", never)
        with pytest.raises(AssertionError):
            answer(villain, gradient(villain))
    with pytest.raises(QueryRefused, match="release 0 of this run was begun already"):
        answer(villain, gradient(villain, theta=np.ones(3)))
    answer(villain, gradient(villain))
    with pytest.raises(QueryRefused, match="answered already"):
        answer(villain, gradient(villain, theta=np.ones(3)))
    assert len(villain.deployment.reserved("north")) == 1


def test_two_queries_for_one_release_at_once_get_one_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    villain = Villain(clear_of_three(tmp_path))
    compute = Party.compute

    def slowly(party: Party, query: Query) -> Ring:
        time.sleep(0.2)  # long enough for all to have found the reservation
        return compute(party, query)

    monkeypatch.setattr(Party, "compute", slowly)
    queries = [gradient(villain, theta=np.full(3, 0.1 * n)) for n in range(4)]

    def ask(query: GradientQuery) -> bool:
        try:
            answer(villain, query)
        except QueryRefused:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(ask, queries)) == 1
    assert len(villain.deployment.reserved("north")) == 1


def test_an_answer_that_was_cut_short_on_the_disk_is_not_computed_again(tmp_path: Path) -> None:
    """Whatever is left of it: the party would rather say nothing than draw noise twice."""
    villain = Villain(clear_of_three(tmp_path))
    answer(villain, gradient(villain))
    (path,) = (tmp_path / "parties" / "north" / "state" / "answers").iterdir()
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises((QueryRefused, SecureAggregationError)):
            answer(villain, gradient(villain, theta=np.ones(3)))


def test_a_state_directory_that_was_put_back_gets_no_second_answer(tmp_path: Path) -> None:
    """The ledger is newer than the journal: what it committed is not answered again."""
    villain = Villain(clear_of_three(tmp_path))
    answers = tmp_path / "parties" / "north" / "state" / "answers"
    answer(villain, gradient(villain, 0))
    (path,) = answers.iterdir()
    earlier = path.read_bytes()
    answer(villain, gradient(villain, 1))
    path.write_bytes(earlier)
    for asked in (gradient(villain, 1), gradient(villain, 1, theta=np.ones(3))):
        with pytest.raises(QueryRefused, match="not in the state directory any more"):
            answer(villain, asked)


# What a query may say.


def spelled(query: GradientQuery, **changes: Any) -> bytes:
    """The query with values in its header that no honest server could write there."""
    data = codec.to_bytes(query)
    length = int.from_bytes(data[10:14], "big")
    values = {**json.loads(data[14 : 14 + length]), **changes}
    header = json.dumps(values, sort_keys=True, separators=(",", ":")).encode()
    return data[:10] + len(header).to_bytes(4, "big") + header + data[14 + length :]


GAUSSIAN = {"adjacency": "replace-one", "kind": "gaussian"}
EXTREMES: tuple[dict[str, Any], ...] = (
    {"round": 2**63},
    {"round": 2**64},
    {"round": -1},
    {"round": True},
    {"round": 0.0},
    {"round": None},
    {"clip_norm": float("nan")},
    {"clip_norm": float("inf")},
    {"clip_norm": -0.0},
    {"clip_norm": 10**400},
    {"clip_norm": "1.0"},
    {"grid": {"step": 5e-324, "bits": 64}},
    {"grid": {"step": 2.0**-20, "bits": 64.0}},
    {"sampling_rate": -0.0},
    {"sampling_rate": 1 + 2.0**-52},
    {"weights": "equals"},
    {"event": {**GAUSSIAN, "relative_noise": float("nan")}},
    {"event": {**GAUSSIAN, "relative_noise": 0.0}},
    {"event": {**GAUSSIAN, "relative_noise": -1.0}},
    {"event": {**GAUSSIAN, "relative_noise": 10.0, "sampling_rate": 0.1}},
    {"theta": [0]},
    {"theta": [3, 1]},
    {"theta": [-3]},
    {"theta": [2**62]},
    {"theta": None},
    {"kind": "erm"},
    {"kind": ["gradient"]},
    {"more": 1},
)


@pytest.mark.parametrize("changes", EXTREMES, ids=str)
def test_extreme_values_are_refused_and_nothing_is_paid(
    tmp_path: Path, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    villain = Villain(clear_of_three(tmp_path))
    monkeypatch.setattr("fedpriv.data.tables.files.read_table", never)
    asked = spelled(gradient(villain), **changes)
    ask = Ask(run=RUN, round=0, party=0)
    assert len(villain.ask(0, Join(run=RUN, round=0, party=0), ask, query=asked)) == 1
    assert "QueryRefused" in villain.refusals[-1]
    assert not (tmp_path / "parties" / "north" / "north.ledger").exists() or not (
        villain.deployment.reserved("north")
    )


@pytest.mark.parametrize("name", ["\ud800", "\x00", "\n", "x" * 200, "\u202e"])
def test_a_run_has_a_name_that_can_be_stored_and_shown(tmp_path: Path, name: str) -> None:
    """A name of megabytes went into the ledger with every release."""
    villain = Villain(clear_of_three(tmp_path))
    run = f"{villain.host(0).engagement.run}-{name}"
    ask = Ask(run=RUN, round=0, party=0)
    asked = spelled(gradient(villain), run=run)
    assert len(villain.ask(0, Join(run=RUN, round=0, party=0), ask, query=asked)) == 1
    assert "malformed" in villain.refusals[-1]
    assert not list(tmp_path.rglob("*.ledger"))


# What is left on the disk.


def test_a_name_with_a_path_in_it_leaves_the_state_directory_as_it_is(tmp_path: Path) -> None:
    villain = Villain(clear_of_three(tmp_path))
    before = {path for path in tmp_path.rglob("*") if "state" not in path.parts}
    run = f"{villain.host(0).engagement.run}-/../../../../escape"
    answer(villain, gradient(villain, run=run))
    made = {path for path in tmp_path.rglob("*") if "state" not in path.parts} - before
    assert {path.name for path in made} <= {"north.ledger", "north.ledger-wal", "north.ledger-shm"}
    (stored,) = (tmp_path / "parties" / "north" / "state" / "answers").iterdir()
    assert re.fullmatch("[0-9a-f]{64}", stored.name)


def test_answers_of_old_runs_are_forgotten_and_never_given_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that makes up runs does not fill the disk, and gets nothing twice."""
    monkeypatch.setattr("fedpriv.federation.deployed.journal._ANSWERS", 3)
    villain = Villain(clear_of_three(tmp_path))
    name = villain.host(0).engagement.run
    event = GaussianEvent(relative_noise=100.0, adjacency=Adjacency.REPLACE_ONE)
    runs = [gradient(villain, run=f"{name}-{n}", event=event) for n in range(5)]
    for query in runs:
        answer(villain, query)
    assert len(list((tmp_path / "parties" / "north" / "state" / "answers").iterdir())) == 3
    with pytest.raises(QueryRefused, match="not in the state directory any more"):
        answer(villain, replace(runs[0], theta=np.ones(3)))
    answer(villain, runs[4])
    assert len(villain.deployment.reserved("north")) == 5
