"""Control variates of deployed parties: kept, moved once a release whatever fails, and erased."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.federation.deployed.journal import Journal, LedgerMark
from fedpriv.federation.deployed.party import DeployedParty
from fedpriv.federation.party.guard import QueryRefused
from fedpriv.federation.party.party import Party
from fedpriv.federation.party.training import Trainees, Variates, coins
from fedpriv.learning.training.settings import LocalSgd
from fedpriv.learning.training.trainer import LocalTrainer
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.randomness import RandomStream
from tests.federation.deployed.deployments import FOUR
from tests.federation.deployed.errands import done, verified
from tests.federation.deployed.test_deployed_training import (
    answer,
    deployed,
    host,
    query,
    sampled,
)

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.federation.queries.local_training import LocalTrainingQuery
    from tests.federation.deployed.deployments import Deployment

SCAFFOLD: dict[str, Any] = {"name": "scaffold"}


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    return deployed(tmp_path, strategy=SCAFFOLD)


def asked(deployment: Deployment, round_: int, **changes: Any) -> LocalTrainingQuery:
    """What a server that learned something asks for in a round."""
    control = np.full(3, 0.1 * round_)
    theta = np.linspace(-1, 1, 3) * round_
    training = LocalSgd(epochs=1, batch_size=4, learning_rate=0.5)
    stated = {"round": round_, "theta": theta, "control": control, "training": training}
    return query(deployment, **{**stated, **changes})


def journal(deployment: Deployment) -> Journal:
    return Journal(deployment.home("north") / "state")


def kept(deployment: Deployment) -> Variates:
    data = journal(deployment).variate(query(deployment).run)
    assert data is not None
    return Variates.from_bytes(data)


def in_memory(deployment: Deployment) -> Party:
    """The same party, one process long: what it answers is the definition."""
    party = host(deployment).party
    assert isinstance(party, DeployedParty)
    engagement = host(deployment).engagement
    return Party(
        party._records,
        task=engagement.task,
        sampling=lambda _: RandomStream.seeded(0, "unused"),
    )


def test_every_message_has_a_process_of_its_own_and_the_variate_goes_on(
    deployment: Deployment,
) -> None:
    one, forgetful = in_memory(deployment), in_memory(deployment)
    for round_ in range(4):
        question = asked(deployment, round_)
        expected = one.answer(question).tolist()
        assert answer(deployment, question).tolist() == expected
        forgetful.remember(b"")
        if round_ > 1:  # in the first two the past makes no difference yet, or little
            assert forgetful.answer(question).tolist() != expected
    assert kept(deployment).round == 3


def test_a_release_that_is_asked_for_again_moves_it_once(deployment: Deployment) -> None:
    answer(deployment, asked(deployment, 0))
    question = asked(deployment, 1)
    first = answer(deployment, question).tolist()
    moved = kept(deployment)
    assert np.abs(moved.after - moved.before).max() > 1e-3
    for _ in range(3):
        assert answer(deployment, question).tolist() == first
    assert (kept(deployment).after == moved.after).all()


@pytest.mark.parametrize("fails", ["keep_variate", "give"])
def test_a_party_that_is_killed_takes_the_same_step_once(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """Before the variate is on the disk, or between that and the answer."""
    whole = in_memory(deployment)
    expected = [whole.answer(asked(deployment, round_)).tolist() for round_ in range(3)]
    answer(deployment, asked(deployment, 0))
    done = getattr(Journal, fails)

    def killed(self: Journal, name: str, data: Any) -> None:
        if fails == "give" and data.pending:  # the draw, before anything is computed
            done(self, name, data)
            return
        raise OSError("the machine is going down")

    with monkeypatch.context() as patch:
        patch.setattr(Journal, fails, killed)
        with pytest.raises(QueryRefused, match="disk does not take"):
            answer(deployment, asked(deployment, 1))
    assert kept(deployment).round == (0 if fails == "keep_variate" else 1)
    assert answer(deployment, asked(deployment, 1)).tolist() == expected[1]
    assert answer(deployment, asked(deployment, 2)).tolist() == expected[2]


def test_a_variate_that_was_lost_is_not_made_up(deployment: Deployment) -> None:
    answer(deployment, asked(deployment, 0))
    (path,) = (deployment.home("north") / "state" / "variates").iterdir()
    path.unlink()
    with pytest.raises(QueryRefused, match="control variate is not in the state directory"):
        answer(deployment, asked(deployment, 1))
    assert [round_ for _, round_ in deployment.reserved("north")] == [0]  # nothing was paid


def test_a_party_that_missed_rounds_begins_with_the_servers(deployment: Deployment) -> None:
    """As in a first round: it has answered nothing, and lost nothing."""
    question = asked(deployment, 2)
    assert answer(deployment, question).tolist() == in_memory(deployment).answer(question).tolist()
    assert (kept(deployment).before == question.control).all()


def test_who_stays_out_trains_and_keeps_its_variate(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its coin must show in no time and in no file but its own variate, which stays as it was."""
    trained: list[bool] = []
    updates = LocalTrainer.updates

    def watched(*arguments: Any, joining: Any, **more: Any) -> Any:
        trained.append(bool(joining.any()))
        return updates(*arguments, joining=joining, **more)

    monkeypatch.setattr(LocalTrainer, "updates", watched)
    event = sampled(deployment).event
    seen = set()
    for round_ in range(16):
        question = asked(deployment, round_, event=event, party_rate=0.5)
        joined = bool(answer(deployment, question).any())
        step = kept(deployment)
        assert (step.round, bool((step.after != step.before).any())) == (round_, joined)
        seen.add(joined)
    assert seen == {True, False}  # else with probability 2⁻¹⁵
    assert trained == [True] * 16


def test_a_coin_of_a_release_that_failed_moves_the_variate_as_its_answer_says(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = sampled(deployment).event
    for round_ in range(6):
        question = asked(deployment, round_, event=event, party_rate=0.5)

        def fails(*_args: object) -> None:
            raise OSError("the machine is going down")

        with monkeypatch.context() as patch:
            patch.setattr(Trainees, "answer", fails)
            with pytest.raises(QueryRefused, match="disk does not take"):
                answer(deployment, question)
        given = journal(deployment).given(question.run)
        assert given is not None
        tossed = coins(question, 1, RandomStream.from_secret(given.secret, "sample"))
        assert bool(answer(deployment, question).any()) == bool(tossed[0])
        step = kept(deployment)
        assert bool((step.after != step.before).any()) == bool(tossed[0])


@pytest.mark.parametrize("value", [1e308, -1e308, 1e200, 1e30])
def test_a_control_variate_of_a_hostile_server_moves_no_answer_beyond_its_bound(
    deployment: Deployment, value: float
) -> None:
    for round_, sign in enumerate((1, -1, 1)):
        question = asked(deployment, round_, control=np.full(3, sign * value))
        vector = question.grid.decode(answer(deployment, question)) * question.grid.step
        assert np.linalg.norm(vector) <= 1 + 6 * question.grid.step
        assert np.isfinite(kept(deployment).after).all()


def test_it_lives_as_long_as_the_run(tmp_path: Path) -> None:
    """Attested, cancelled or left: nothing that was made of records is kept any more."""
    for number, end in enumerate(("attest", "cancel", "leave")):
        folder = tmp_path / str(number)
        folder.mkdir(mode=0o700)
        deployment = deployed(folder, strategy=SCAFFOLD)
        question = asked(deployment, 0)
        answer(deployment, question)
        state = journal(deployment)
        assert kept(deployment).run == question.run
        with state.held():
            match end:
                case "attest":
                    state.attest(question.run, bytes(32))
                case "cancel":
                    state.cancel(question.run, [])
                case "leave":
                    with deployment.ledger("north") as ledger:
                        assert isinstance(ledger, Ledger)
                        state.leave(ledger=LedgerMark.of(ledger))
        assert not list((deployment.home("north") / "state" / "variates").iterdir())


def test_another_run_has_a_variate_of_its_own(deployment: Deployment) -> None:
    name = query(deployment).run
    answer(deployment, asked(deployment, 0))
    moved = kept(deployment)
    other = asked(deployment, 1, run=f"{name}1")
    answer(deployment, other)
    found = journal(deployment).variate(other.run)
    assert found is not None
    assert (Variates.from_bytes(found).before == other.control).all()
    assert (kept(deployment).after == moved.after).all()


def test_a_run_for_whole_parties_from_end_to_end(tmp_path: Path) -> None:
    """Signed, verified and handed over: no party signed the statement of such a run."""
    deployment = deployed(tmp_path, **FOUR, strategy=SCAFFOLD)
    result = deployment.run(tmp_path / "out")
    assert (result["rounds"], result["unit"]) == (3, "party")
    variates = deployment.home("north") / "state" / "variates"
    assert list(variates.iterdir())
    assert set(done("attest", deployment, tmp_path / "out").values()) == {"signed"}
    assert not list(variates.iterdir())  # it has outlived its use
    roster = deployment.server / "roster.toml"
    assert verified(tmp_path / "out", "--roster", roster, "--complete")[0] == 0
    assert set(done("handover", deployment, tmp_path / "out").values()) == {"has it"}
    with np.load(tmp_path / "out" / "model.npz") as arrays:
        assert np.isfinite(arrays["theta"]).all()
        assert arrays["theta"].any()


def test_a_variate_of_another_length_is_refused(deployment: Deployment) -> None:
    answer(deployment, asked(deployment, 0))
    state, run = journal(deployment), query(deployment).run
    wrong = replace(kept(deployment), before=np.zeros((1, 2)), after=np.zeros((1, 2)))
    with state.held():
        state.keep_variate(run, wrong.to_bytes())
    with pytest.raises(ValueError, match="shape"):
        answer(deployment, asked(deployment, 1))
