"""A deployed party: it pays first, answers once, forgets nothing, and says no."""

from __future__ import annotations

import errno
import stat
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from flwr.app import Message, MessageType, RecordDict

from fedpriv.federation.deployed import journal
from fedpriv.federation.deployed.host import DeployedHost
from fedpriv.federation.deployed.journal import Journal
from fedpriv.federation.deployed.party import DeployedParty
from fedpriv.federation.party.answered import Given
from fedpriv.federation.party.guard import QueryRefused
from fedpriv.federation.party.memory import Memory
from fedpriv.federation.protocol.wire import (
    Announce,
    Ask,
    ClearAnswer,
    Join,
    Joined,
    Reply,
    Request,
)
from fedpriv.federation.queries import encoding as codec
from fedpriv.federation.queries.bounds import share_mechanism
from fedpriv.federation.queries.kinds import GradientQuery, RiskGradientQuery
from fedpriv.federation.queries.local_noise import LocalNoise
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent, PoissonGaussianEvent, PureEvent
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.mechanisms.shares import NoiseShare
from fedpriv.privacy.randomness import RandomStream
from fedpriv.privacy.unit import Unit
from fedpriv.secagg import FixedPoint
from fedpriv.secagg.errors import WrongRound
from tests.federation.deployed.deployments import FOUR, SIZES, Deployment, take_any_kind

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.secagg.numbers.fixed_point import Ring

RUN = bytes(range(32))
CLEAR: dict[str, Any] = {
    "policy": {"secure_aggregation": "off"},
    "experiment": {"run": {"secure_aggregation": "off"}},
}


@pytest.fixture
def clear(tmp_path: Path) -> Deployment:
    """Parties that answer in the clear: one message is one answer."""
    tmp_path.chmod(0o700)
    return Deployment(folder=tmp_path, **CLEAR)


@pytest.fixture
def active(tmp_path: Path) -> Deployment:
    tmp_path.chmod(0o700)
    return Deployment(folder=tmp_path)


def north(deployment: Deployment, config: str | None = None) -> DeployedHost:
    host = deployment.host("north", config)
    assert isinstance(host, DeployedHost)
    return host


def party(deployment: Deployment) -> DeployedParty:
    """The party of a fresh process."""
    found = north(deployment).party
    assert isinstance(found, DeployedParty)
    return found


def query(deployment: Deployment, round_: int = 0, **changes: Any) -> GradientQuery:
    stated = GradientQuery(
        run=f"{north(deployment).engagement.run}-1",
        round=round_,
        grid=FixedPoint(step=2.0**-20, bits=64),
        event=GaussianEvent(relative_noise=10.0, adjacency=Adjacency.REPLACE_ONE),
        theta=np.full(3, 0.1 * round_),
        clip_norm=1.0,
    )
    return replace(stated, **changes)


def noisy(deployment: Deployment, round_: int = 0, **changes: Any) -> GradientQuery:
    """With a share of the noise: every draw differs."""
    share = NoiseShare(law="skellam", parameter=1e16, minimum=2, colluders=1)
    stated = query(deployment, round_, share=share, **changes)
    mechanism = share_mechanism(stated, north(deployment).engagement.task)
    assert mechanism is not None
    return replace(stated, event=mechanism.event())


def locally_noisy(deployment: Deployment) -> GradientQuery:
    """With noise of the party's own, which needs no masks."""
    local = LocalNoise(law="gaussian", relative_noise=10.0, adjacency=Adjacency.REPLACE_ONE)
    stated = query(deployment, 0, local=local)
    task = north(deployment).engagement.task
    mechanism = stated.local_mechanism(task, task.smallest)
    assert mechanism is not None
    return replace(stated, event=mechanism.event())


def answer(deployment: Deployment, asked: GradientQuery) -> Ring:
    """By a fresh process."""
    with Journal(deployment.home("north") / "state").held():
        return party(deployment).answer(asked)


def forget_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on, reading a record is an error."""

    def read(*_args: object) -> None:
        raise AssertionError("a record was read")

    monkeypatch.setattr("fedpriv.data.tables.files.read_table", read)


# Paying and answering.


def test_a_party_pays_for_an_answer_before_it_gives_it(clear: Deployment) -> None:
    answer(clear, query(clear))
    with clear.ledger("north") as ledger:
        (run,) = ledger.runs()
        assert ledger.spent().mu == pytest.approx(0.1)
        assert (ledger.settings.budget.epsilon, ledger.settings.data_name) == (2.0, "north")
        assert ledger.fingerprint is not None
        kinds = [row.kind for row in ledger.rows()]
    assert kinds.index("data") < kinds.index("reserved") < kinds.index("committed")
    assert run.run == query(clear).run


def test_a_party_pays_for_the_unit_of_its_budget_and_for_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number of records is then its own affair: the roster may state another one."""
    tmp_path.chmod(0o700)
    deployment = Deployment(
        folder=tmp_path, budget={"unit": "party"}, sizes=(41, *SIZES[1:]), **CLEAR
    )
    with pytest.raises(QueryRefused, match="unit 'record', one record, and the policy"):
        answer(deployment, query(deployment))
    monkeypatch.setattr(GradientQuery, "units", tuple(Unit))  # a kind that bounds all three
    event = GaussianEvent(relative_noise=10.0, adjacency=Adjacency.REPLACE_ONE, unit=Unit.PARTY)
    answer(deployment, query(deployment, event=event))
    with deployment.ledger("north") as ledger:
        assert ledger.settings.unit is Unit.PARTY
        assert ledger.spent().mu == pytest.approx(0.1)
    with party(deployment).account() as account:
        assert account.settings.unit is Unit.PARTY
    deployment.write_party("north", unit="record")
    with pytest.raises(QueryRefused, match="LedgerMismatch"):
        answer(deployment, query(deployment, 1))
    with pytest.raises(QueryRefused, match="LedgerMismatch"), party(deployment).account():
        pass


def test_an_answer_is_that_of_the_records_in_the_partys_file(clear: Deployment) -> None:
    from fedpriv.data import bound, read_schema, read_table
    from fedpriv.federation.party.party import Party

    home, engagement = clear.home("north"), north(clear).engagement
    dataset, _ = read_table(home / "records.csv", read_schema(home / "schema.toml"))
    direct = Party(
        bound(dataset, engagement.bounds).train,
        task=engagement.task,
        sampling=lambda _: RandomStream.from_os(),
    )
    np.testing.assert_array_equal(answer(clear, query(clear)), direct.answer(query(clear)))


def test_the_same_query_again_gets_the_same_integers_and_costs_nothing(clear: Deployment) -> None:
    first = answer(clear, noisy(clear))
    spent = clear.ledger("north").spent()
    for _ in range(3):
        np.testing.assert_array_equal(answer(clear, noisy(clear)), first)
    assert clear.ledger("north").spent() == spent
    assert clear.reserved("north") == [(noisy(clear).run, 0)]


def test_another_draw_would_have_shown(clear: Deployment) -> None:
    """The twin of the test above: the noise of two releases differs."""
    first = answer(clear, noisy(clear, 0, theta=np.zeros(3)))
    second = answer(clear, noisy(clear, 1, theta=np.zeros(3)))
    assert (first != second).all()


def test_a_release_is_answered_to_one_query_only(
    clear: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(clear, query(clear, 3))
    forget_to_read(monkeypatch)
    for asked in (
        query(clear, 3, theta=np.ones(3)),
        query(clear, 3, event=GaussianEvent(relative_noise=20.0, adjacency="replace-one")),  # type: ignore[arg-type]
        query(clear, 2),
        query(clear, 0),
    ):
        with pytest.raises(QueryRefused, match="release 3 of this run was answered already"):
            answer(clear, asked)
    assert len(clear.reserved("north")) == 1


def test_an_answer_that_was_lost_is_not_computed_again(clear: Deployment) -> None:
    """A state directory restored from an old copy: the ledger knows what the journal forgot."""
    answer(clear, noisy(clear))
    for path in (clear.home("north") / "state" / "answers").iterdir():
        path.unlink()
    with pytest.raises(QueryRefused, match="not in the state directory any more"):
        answer(clear, noisy(clear))


def test_a_lost_ledger_is_not_made_anew(clear: Deployment) -> None:
    answer(clear, query(clear))
    for path in clear.home("north").glob("north.ledger*"):
        path.unlink()
    with pytest.raises(QueryRefused, match="its ledger is gone"):
        answer(clear, query(clear, 1))


def test_a_spent_budget_refuses_before_a_record_is_read(
    clear: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    costly = GaussianEvent(relative_noise=3.0, adjacency=Adjacency.REPLACE_ONE)
    answer(clear, query(clear, event=costly))
    forget_to_read(monkeypatch)
    with pytest.raises(QueryRefused, match="does not pay for release 1"):
        answer(clear, query(clear, 1, event=costly))
    assert len(clear.reserved("north")) == 1


def test_what_breaks_the_policy_is_refused_before_anything_is_touched(
    clear: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_to_read(monkeypatch)
    for asked in (
        query(clear, clip_norm=2.0),
        query(clear, run="another"),
        query(clear, event=None),
        query(clear, event=GaussianEvent(relative_noise=0.1, adjacency="replace-one")),  # type: ignore[arg-type]
    ):
        with pytest.raises(QueryRefused):
            answer(clear, asked)
    assert not list(clear.home("north").glob("*.ledger"))


def test_an_event_that_the_ledger_cannot_add_up_is_refused(clear: Deployment) -> None:
    answer(clear, query(clear))  # Gaussian: the ledger adds up squared GDP from now on
    with pytest.raises(QueryRefused, match="has no price for skellam"):
        answer(clear, noisy(clear, 1))


def test_sampled_releases_are_charged_one_by_one(tmp_path: Path) -> None:
    """A party knows one query at a time, not the plan: a Rényi filter adds them up."""
    tmp_path.chmod(0o700)
    deployment = Deployment(folder=tmp_path, budget={"adjacency": "add-remove"}, **CLEAR)
    event = PoissonGaussianEvent(
        relative_noise=2.0, sampling_rate=0.2, adjacency=Adjacency.ADD_REMOVE
    )
    asked = (query(deployment, r, sampling_rate=0.2, event=event) for r in range(1000))
    answered = 0
    try:
        for each in asked:
            answer(deployment, each)
            answered += 1
    except QueryRefused as refusal:
        assert "does not pay" in str(refusal)  # noqa: PT017
    assert answered > 5
    with deployment.ledger("north") as ledger:
        assert ledger.spent().within_budget
        assert ledger.spent().guarantee.epsilon > 1.5


def test_a_joint_fit_pays_once_for_all_its_exchanges(
    clear: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_any_kind(monkeypatch)

    def exchange(number: int) -> RiskGradientQuery:
        base = query(clear)
        return RiskGradientQuery(
            run=base.run,
            round=0,
            grid=base.grid,
            event=base.event,
            theta=np.full(3, 0.2 * number),
            exchange=number,
        )

    first = answer(clear, exchange(0))  # type: ignore[arg-type]
    second = answer(clear, exchange(1))  # type: ignore[arg-type]
    assert (first != second).any()
    np.testing.assert_array_equal(answer(clear, exchange(0)), first)  # type: ignore[arg-type]
    assert clear.reserved("north") == [(query(clear).run, 0)]
    other = replace(exchange(2), event=PureEvent(epsilon=0.1, adjacency=Adjacency.REPLACE_ONE))
    with pytest.raises(QueryRefused, match="LedgerConflict"):
        answer(clear, other)  # type: ignore[arg-type]


# Data, roster, keys.


def test_records_that_changed_are_refused(clear: Deployment) -> None:
    answer(clear, query(clear))
    path = clear.home("north") / "records.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], *reversed(lines[1:]), ""]))
    with pytest.raises(QueryRefused, match="LedgerMismatch"):
        answer(clear, query(clear, 1))


def test_a_roster_that_lies_about_the_size_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    lying = Deployment(folder=tmp_path, sizes=(41, *SIZES[1:]), **CLEAR)
    with pytest.raises(QueryRefused, match="states 41 records for 'north'"):
        answer(lying, query(lying))


def test_what_is_wrong_with_records_is_told_to_their_owner_and_not_to_the_server(
    clear: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    path = clear.home("north") / "records.csv"
    path.write_text(path.read_text().replace("yes", "maybe", 1))
    with pytest.raises(QueryRefused, match=r"^the records of this party cannot be used\.$"):
        answer(clear, query(clear))
    assert "Column 'sick': 1 value is none of the declared values" in caplog.text
    assert "maybe" not in caplog.text


def test_a_budget_that_was_changed_in_the_file_is_refused(clear: Deployment) -> None:
    answer(clear, query(clear))
    clear.write_party("north", epsilon=20.0)
    with pytest.raises(QueryRefused, match="LedgerMismatch"):
        answer(clear, query(clear, 1))


def test_a_party_does_not_open_with_keys_or_certificates_that_are_not_its_own(
    clear: Deployment,
) -> None:
    home = clear.home("north")
    clear.write_party("north", policy={"server": "sha256:" + "0" * 64})
    with pytest.raises(ValueError, match=r"policy\.server must be the fingerprint of .*ca\.crt"):
        north(clear)
    clear.write_party("north", policy={"server_identity": "sha256:" + "0" * 64})
    with pytest.raises(ValueError, match=r"policy\.server_identity must be .* in the roster"):
        north(clear)
    clear.write_party("north", policy={"strategies": ["gradient-pertubation"]})
    with pytest.raises(ValueError, match=r"policy\.strategies\[0\] .*'gradient-perturbation'"):
        north(clear)
    clear.write_party("north")
    (home / "identity.key").chmod(0o644)
    with pytest.raises(ValueError, match=r"readable by its owner alone: .* mode 0644"):
        north(clear)
    (home / "identity.key").write_bytes((clear.home("east") / "identity.key").read_bytes())
    (home / "identity.key").chmod(0o600)
    with pytest.raises(ValueError, match="private key of 'north' in the roster, and is not"):
        north(clear)


def test_an_experiment_of_a_simulation_opens_no_party(clear: Deployment) -> None:
    config = clear.config(run={"engine": "local"}, data={"path": "x.csv"})
    with pytest.raises(ValueError, match=r"run\.engine must be 'deployment'"):
        north(clear, config)


# Randomness.


@pytest.fixture
def seeds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Who asked for a seeded stream, or for a generator of numpy."""
    seen: list[str] = []
    seeded, generator = RandomStream.seeded, np.random.default_rng

    def stream(*arguments: Any) -> RandomStream:
        seen.append("stream")
        return seeded(*arguments)

    def numpy(*arguments: Any) -> np.random.Generator:
        seen.append("numpy")
        return generator(*arguments)

    monkeypatch.setattr(RandomStream, "seeded", stream)
    monkeypatch.setattr(np.random, "default_rng", numpy)
    return seen


def test_no_seed_reaches_a_deployed_party(clear: Deployment, seeds: list[str]) -> None:
    """No stream of a party comes from a seed: not its noise, its samples, its keys or its salts."""
    answer(clear, noisy(clear))
    ask(clear, join(), Ask(run=RUN, round=1, party=0), asked=noisy(clear))
    answer(clear, query(clear, 1, sampling_rate=0.5))
    assert seeds == []


def test_the_watch_for_seeds_has_teeth(seeds: list[str]) -> None:
    from tests.federation.engines.grids import host

    host.__wrapped__(0).party.answer(
        GradientQuery(
            run="run",
            round=0,
            grid=FixedPoint(step=2.0**-20, bits=64),
            event=GaussianEvent(relative_noise=10.0, adjacency=Adjacency.REPLACE_ONE),
            theta=np.zeros(4),
            clip_norm=1.0,
        )
    )
    assert "stream" in seeds


def test_equal_seeds_in_two_deployments_give_different_noise(tmp_path: Path) -> None:
    """The same records and the same experiment, twice: only what the machine drew differs."""
    tmp_path.chmod(0o700)
    answers = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir(mode=0o700)
        deployment = Deployment(
            folder=tmp_path / name,
            policy=CLEAR["policy"],
            experiment={"run": {"secure_aggregation": "off", "seed": 7}},
        )
        answers.append(answer(deployment, noisy(deployment)))
    assert (answers[0] != answers[1]).all()


# At the end of the line.


def join(run: bytes = RUN) -> Join:
    return Join(run=run, round=0, party=0)


def ask(
    deployment: Deployment, *records: Any, asked: GradientQuery | None = None, **more: Any
) -> Reply:
    """A message to a fresh process of the party."""
    data = b"" if asked is None else codec.to_bytes(asked)
    request = Request(messages=records, query=data).to_bytes()
    return Reply.from_bytes(north(deployment, **more).handle(request))


def test_a_fresh_process_goes_on_where_the_last_one_stopped(clear: Deployment) -> None:
    (joined,) = ask(clear, join()).messages
    assert isinstance(joined, Joined)
    assert (joined.party, joined.size) == (0, SIZES[0])
    first = ask(clear, Ask(run=RUN, round=1, party=0), asked=query(clear))
    assert isinstance(first.messages[0], ClearAnswer)
    again = ask(clear, Ask(run=RUN, round=1, party=0), asked=query(clear))
    assert again.to_bytes() == first.to_bytes()


def test_nothing_is_answered_in_a_run_that_was_not_joined(clear: Deployment) -> None:
    reply = ask(clear, Ask(run=RUN, round=1, party=0), asked=query(clear))
    assert (reply.messages, reply.refusal) == ((), "OutOfOrder: No run was joined yet.")
    assert not list(clear.home("north").glob("*.ledger"))


def test_a_masked_run_serves_one_named_run(clear: Deployment) -> None:
    ask(clear, join())
    ask(clear, Ask(run=RUN, round=1, party=0), asked=query(clear))
    other = query(clear, 1, run=query(clear).run + "b")
    reply = ask(clear, Ask(run=RUN, round=2, party=0), asked=other)
    assert "another run than those before it" in reply.refusal


def test_a_server_that_lost_its_place_gets_the_same_answer_in_a_new_run(clear: Deployment) -> None:
    replies = []
    for run in (RUN, RUN[::-1]):
        ask(clear, join(run))
        reply = ask(clear, Ask(run=run, round=1, party=0), asked=locally_noisy(clear))
        (found,) = reply.messages
        assert isinstance(found, ClearAnswer)
        replies.append(found.vector)
    np.testing.assert_array_equal(replies[0], replies[1])


def test_less_protection_than_the_policy_asks_for_is_refused_at_the_door(
    active: Deployment,
) -> None:
    for level in ("off", "semi-honest"):
        config = active.config(run={"secure_aggregation": level})
        reply = ask(active, join(), config=config)
        assert reply.messages == ()
        assert f"secure aggregation {level!r}" in reply.refusal
    assert ask(active, join()).messages


def test_a_party_neither_trains_nor_evaluates_for_flower(clear: Deployment) -> None:
    """No metric on a party's records leaves it: there is nobody to ask for one."""
    grid = clear.grid()
    for kind in (MessageType.TRAIN, MessageType.EVALUATE, f"{MessageType.QUERY}.metrics"):
        (name,) = grid.push_messages([Message(RecordDict(), 1001, kind)])
        (reply,) = grid.pull_messages([name])
        assert reply.has_error()


def test_a_strategy_that_is_not_in_the_policy_is_refused_at_the_door(
    active: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    config = active.config(strategy={"name": "local-gradient-perturbation"})
    reply = ask(active, join(), config=config)
    assert "no run of strategy 'local-gradient-perturbation'" in reply.refusal
    assert reply.refusal in caplog.text  # the party's own log has it, too


def test_a_round_that_would_open_too_small_a_sum_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    deployment = Deployment(folder=tmp_path, **FOUR, policy={"min_parties": 4})
    ask(deployment, join())
    for number, (minimum, refusal) in enumerate(((3, "insists on 4"), (4, "")), 1):
        announced = Announce(run=RUN, round=number, party=0, cohort=(0, 1, 2, 3), minimum=minimum)
        reply = ask(deployment, announced)
        assert refusal in reply.refusal
        assert len(reply.messages) == (0 if refusal else 1)


def test_an_answer_in_the_clear_is_refused_where_masks_are_asked_for(active: Deployment) -> None:
    ask(active, join())
    reply = ask(active, Ask(run=RUN, round=1, party=0), asked=query(active))
    assert "under masks only" in reply.refusal


def test_a_share_in_the_clear_is_refused(clear: Deployment) -> None:
    ask(clear, join())
    share = NoiseShare(law="skellam", parameter=1e16, minimum=3, colluders=1)
    asked = replace(noisy(clear), share=share)
    reply = ask(clear, Ask(run=RUN, round=1, party=0), asked=asked)
    assert "count on 3 parties" in reply.refusal


# The journal.


def test_everything_in_the_state_directory_is_for_its_owner_alone(clear: Deployment) -> None:
    ask(clear, join())
    ask(clear, Ask(run=RUN, round=1, party=0), asked=query(clear))
    state = clear.home("north") / "state"
    for path in (state, *state.rglob("*")):
        allowed = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == allowed, path
    kept = "answers heard ledger lock noised planned roster.toml seats shown"
    names = kept.split()
    assert sorted(path.name for path in state.iterdir()) == names


def test_the_ledger_learns_nothing_about_an_answer() -> None:
    """Its digest is salted: equal answers have digests that cannot be told from unequal ones."""
    vector = np.arange(3, dtype=np.uint64)
    one, two = (
        Given(release=0, query=bytes(32), salt=bytes([i]) * 32, vector=vector, shared=0)
        for i in (1, 2)
    )
    assert one.digest != two.digest
    assert replace(one, opened=(0, 1), masks=7).digest == one.digest


def test_a_seat_is_kept_until_many_newer_runs_have_come_and_then_never_taken_again(
    tmp_path: Path,
) -> None:
    book = Journal(tmp_path)
    runs = [bytes([i]) * 32 for i in range(20)]
    with book.held():
        for run in runs:
            book.keep(Memory(run=run, channel=run))
        for run in runs[:4]:
            with pytest.raises(WrongRound, match="left it for good"):
                book.memory(run)
        for run in runs[4:]:
            assert book.memory(run).channel == run
        assert book.memory(b"x" * 32).run == b""


# Disks that fail.


def test_a_full_disk_under_the_ledger_is_a_refusal_and_no_answer(
    clear: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite's own limit on pages gives the error of a full disk."""
    tiny = GaussianEvent(relative_noise=1000.0, adjacency=Adjacency.REPLACE_ONE)
    answer(clear, query(clear, event=tiny))
    opening = Ledger.open

    def full(*arguments: Any, **more: Any) -> Ledger:
        ledger = opening(*arguments, **more)
        connection = ledger._store._connection
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
        return ledger

    monkeypatch.setattr(Ledger, "open", full)
    answered = 0
    for round_ in range(1, 200):
        try:
            answer(clear, query(clear, round_, event=tiny))
        except QueryRefused as refusal:
            assert "LedgerFull" in str(refusal)  # noqa: PT017
            break
        answered += 1
    else:
        pytest.fail("the disk was never full")
    monkeypatch.setattr(Ledger, "open", opening)
    paid = len(clear.reserved("north"))
    assert paid >= answered + 1
    answer(clear, query(clear, answered + 1, event=tiny))
    assert len(clear.reserved("north")) == answered + 2


def test_a_full_disk_under_the_state_directory_is_a_refusal_and_no_second_answer(
    clear: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    writing = journal._write
    monkeypatch.setattr(journal, "_write", full)
    with pytest.raises(QueryRefused, match="disk does not take the answer: OSError"):
        answer(clear, noisy(clear))
    monkeypatch.setattr(journal, "_write", writing)
    first = answer(clear, noisy(clear))
    np.testing.assert_array_equal(answer(clear, noisy(clear)), first)
    assert len(clear.reserved("north")) == 1
