"""Local training at deployed parties: a run for whole parties, one coin a release, and refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.federation.deployed.journal import Journal
from fedpriv.federation.deployed.party import DeployedParty
from fedpriv.federation.party.guard import QueryRefused
from fedpriv.federation.party.training import Trainees, coins
from fedpriv.federation.queries.bounds import share_mechanism
from fedpriv.federation.queries.local_training import LocalTrainingQuery
from fedpriv.learning.training.settings import LocalSgd
from fedpriv.learning.training.trainer import LocalTrainer
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent, PoissonGaussianEvent
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.mechanisms.shares import NoiseShare
from fedpriv.privacy.randomness import RandomStream
from fedpriv.privacy.unit import Unit
from fedpriv.secagg import FixedPoint
from tests.federation.deployed.deployments import FOUR, NAMES, Deployment

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.federation.deployed.host import DeployedHost
    from fedpriv.secagg.numbers.fixed_point import Ring

A = Adjacency.ADD_REMOVE
STRATEGY: dict[str, Any] = {
    "name": "federated-averaging",
    "rounds": 3,
    "local_epochs": 2,
    "clip": 1.0,
    "allow_swamped": True,
}
PARTIES: dict[str, Any] = {
    "policy": {
        "strategies": ["federated-averaging", "scaffold"],
        "queries": ["local-training"],
        "units": ["party"],
        "max_local_steps": 100,
    },
    "budget": {"adjacency": "add-remove", "unit": "party"},
    "experiment": {
        "strategy": STRATEGY,
        "privacy": {"adjacency": "add-remove", "unit": "party"},
    },
}


def deployed(folder: Path, *, strategy: dict[str, Any] | None = None, **more: Any) -> Deployment:
    folder.chmod(0o700)
    experiment = {**PARTIES["experiment"], "strategy": {**STRATEGY, **(strategy or {})}}
    for table, keys in more.pop("experiment", {}).items():
        experiment[table] = {**experiment.get(table, {}), **keys}
    policy = {**PARTIES["policy"], **more.pop("policy", {})}
    return Deployment(
        folder=folder, **{**PARTIES, "policy": policy, "experiment": experiment, **more}
    )


def host(deployment: Deployment, name: str = "north") -> DeployedHost:
    return deployment.host(name)


def query(deployment: Deployment, **changes: Any) -> LocalTrainingQuery:
    stated = LocalTrainingQuery(
        run=f"{host(deployment).engagement.run}-1",
        round=0,
        grid=FixedPoint(step=2.0**-20, bits=64),
        event=GaussianEvent(relative_noise=10.0, adjacency=A, unit=Unit.PARTY),
        theta=np.zeros(3),
        training=LocalSgd(epochs=2, batch_size=8, learning_rate=0.5),
        clip_norm=0.5,
    )
    return replace(stated, **changes)


def sampled(deployment: Deployment, rate: float = 0.5) -> LocalTrainingQuery:
    event = PoissonGaussianEvent(
        relative_noise=10.0, sampling_rate=rate, adjacency=A, unit=Unit.PARTY
    )
    return query(deployment, event=event, party_rate=rate)


def answer(deployment: Deployment, asked: LocalTrainingQuery, name: str = "north") -> Ring:
    """By a fresh process."""
    with Journal(deployment.home(name) / "state").held():
        party = host(deployment, name).party
        assert isinstance(party, DeployedParty)
        return party.answer(asked)


# Runs.


@pytest.mark.parametrize("strategy", [{}, {"party_rate": 0.5}, {"clip_quantile": 0.5}])
def test_a_run_for_whole_parties_from_end_to_end(tmp_path: Path, strategy: dict[str, Any]) -> None:
    if "clip_quantile" in strategy:
        # C grows by at most e^0.1 a round: it stays within the parties' max_clip.
        strategy = {**strategy, "count_noise": 20.0, "clip": 0.5}
    deployment = deployed(tmp_path, strategy=strategy)
    result = deployment.run(tmp_path / "out")
    assert (result["rounds"], result["parties"], result["unit"]) == (3, 3, "party")
    statement = json.loads((tmp_path / "out" / "statement.json").read_text())
    words = (tmp_path / "out" / "statement.txt").read_text().split()
    assert "one party more or less" in " ".join(words)
    assert statement["trust"]["secure_aggregation"] == "active"
    with np.load(tmp_path / "out" / "model.npz") as arrays:
        assert np.isfinite(arrays["theta"]).all()
        assert arrays["theta"].any()
    (path,) = deployment.server.glob("*.ledger")
    with Ledger.open(path, read_only=True) as ledger:
        spent = ledger.spent().guarantee
    for name in NAMES:
        with deployment.ledger(name) as ledger:
            assert ledger.settings.unit is Unit.PARTY
            assert len(deployment.reserved(name)) == 3
            assert ledger.spent().guarantee == spent


def test_a_run_with_shares_of_noise_for_whole_parties(tmp_path: Path) -> None:
    deployment = deployed(
        tmp_path,
        **FOUR,
        policy={"noise_at": "parties"},
        experiment={"privacy": {"noise_at": "parties"}, "run": {"dropout": 0.25}},
    )
    result = deployment.run(tmp_path / "out")
    assert (result["rounds"], result["unit"]) == (3, "party")


# One draw.


def test_a_partys_coin_is_the_one_in_its_journal_whatever_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training fails after the coin was tossed: asked again, the party tosses the same coin."""
    deployment = deployed(tmp_path)
    asked = sampled(deployment)
    state = Journal(deployment.home("north") / "state")

    def fails(*_args: object) -> None:
        raise OSError("the machine is going down")

    with monkeypatch.context() as patch:
        patch.setattr(Trainees, "answer", fails)
        with pytest.raises(QueryRefused, match="disk does not take"):
            answer(deployment, asked)
    given = state.given(asked.run)
    assert given is not None
    assert given.pending
    stream = RandomStream.from_secret(given.secret, "sample")
    joins = bool(coins(asked, 1, stream)[0])
    first = answer(deployment, asked)
    assert bool(first.any()) == joins
    assert (answer(deployment, asked) == first).all()
    again = state.given(asked.run)
    assert again is not None
    assert not again.pending  # the secret of the coin is gone
    assert deployment.reserved("north") == [(asked.run, 0)]


def test_a_party_that_stays_out_trains_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How long its answer takes must not tell its coin to whoever watches the network."""
    deployment = deployed(tmp_path)
    asked = sampled(deployment, 0.5)
    trained = []
    clipped_sum = LocalTrainer.clipped_sum

    def watched(*arguments: Any, joining: Any, **more: Any) -> Any:
        trained.append(bool(joining.any()))
        return clipped_sum(*arguments, joining=joining, **more)

    monkeypatch.setattr(LocalTrainer, "clipped_sum", watched)
    answers = [answer(deployment, replace(asked, round=round_)).any() for round_ in range(24)]
    assert {True, False} == set(answers)  # else with probability 2⁻²³
    assert trained == [True] * 24


def test_a_coin_that_the_server_would_see_amplifies_nothing(tmp_path: Path) -> None:
    deployment = deployed(
        tmp_path,
        policy={"secure_aggregation": "off"},
        experiment={"run": {"secure_aggregation": "off"}},
    )
    with pytest.raises(QueryRefused, match="an answer of zeros shows that it stayed out"):
        answer(deployment, sampled(deployment))
    assert answer(deployment, query(deployment, party_rate=0.5)) is not None  # and pays for all


def test_coins_of_parties_and_rounds_differ(tmp_path: Path) -> None:
    deployment = deployed(tmp_path)
    asked = sampled(deployment, 0.5)
    joined = [
        bool(answer(deployment, replace(asked, round=round_), name).any())
        for round_ in range(12)
        for name in NAMES
    ]
    assert 0 < sum(joined) < 36  # all alike with probability 2⁻³⁵


def test_every_party_goes_through_its_records_in_an_order_of_its_own(tmp_path: Path) -> None:
    """The number of the roster decides, as in a simulation; not the place in a process."""
    clear = {"secure_aggregation": "off"}  # where a cohort of one may be asked
    deployment = deployed(tmp_path, policy=clear, experiment={"run": clear})
    asked = query(deployment, cohort=1)
    trains = [bool(answer(deployment, asked, name).any()) for name in NAMES]
    assert trains == asked.trainees(3).tolist()


# Refusals.


@pytest.mark.parametrize(
    ("changes", "policy", "reason"),
    [
        (
            {"training": LocalSgd(steps=101, learning_rate=0.1)},
            {},
            "up to 101 steps of local training, and this party takes at most 100",
        ),
        ({"training": LocalSgd(epochs=21, batch_size=12, learning_rate=0.1)}, {}, "105 steps"),
        ({"clip_norm": 1.5}, {}, "bounds one record's part in the answer by 1.5"),
        ({}, {"queries": ["gradient"]}, "does not answer queries of kind 'local-training'"),
        ({}, {"noise_at": "parties"}, "gets its noise at the server"),
        (
            {"event": GaussianEvent(relative_noise=0.1, adjacency=A, unit=Unit.PARTY)},
            {},
            "insists on 0.5",
        ),
    ],
)
def test_a_policy_says_no_before_a_record_is_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    policy: dict[str, Any],
    reason: str,
) -> None:
    deployment = deployed(tmp_path, policy=policy)

    def read(*_args: object) -> None:
        raise AssertionError("a record was read")

    monkeypatch.setattr("fedpriv.data.tables.files.read_table", read)
    with pytest.raises(QueryRefused, match=reason):
        answer(deployment, query(deployment, **changes))


@pytest.mark.parametrize(("cohort", "answered"), [(1, 0), (2, 1), (3, 2)])
def test_a_cohort_is_no_way_around_the_masks(tmp_path: Path, cohort: int, answered: int) -> None:
    """The exact sum over four parties, three of whom are known to answer zero, is one's answer.

    Another one may be missing from it, and one may collude: three must be left.
    """
    deployment = deployed(tmp_path, **FOUR)
    words = f"a sum of 3 parties would have the answers of {answered} out of the cohort of {cohort}"
    with pytest.raises(QueryRefused, match=words):
        answer(deployment, query(deployment, cohort=cohort))
    assert not (deployment.home("north") / "north.ledger").exists()
    assert answer(deployment, query(deployment, cohort=4)).any()


def test_a_share_is_held_against_what_a_party_can_do_and_not_a_record(tmp_path: Path) -> None:
    """The event of a share follows from the party's own bound: half of it is refused."""
    deployment = deployed(tmp_path, **FOUR, policy={"noise_at": "parties"})
    share = NoiseShare(law="skellam", parameter=1e14, minimum=3, colluders=1)
    stated = query(deployment, share=share)
    mechanism = share_mechanism(stated, host(deployment).engagement.task)
    assert mechanism is not None
    true = mechanism.event()
    with Journal(deployment.home("north") / "state").held():
        party = host(deployment).party
        half = replace(true, variance=4 * true.variance)  # type: ignore[call-arg, attr-defined]
        with pytest.raises(QueryRefused, match="not that of the shares"):
            party.answer(replace(stated, event=half))
        assert party.answer(replace(stated, event=true)).any()
