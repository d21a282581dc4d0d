"""A deployed party: it pays first, answers once, and opens with nothing that is not its own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from fedpriv.federation.party.guard import QueryRefused
from fedpriv.federation.queries.kinds import GradientQuery, RiskGradientQuery
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent, PoissonGaussianEvent, PureEvent
from fedpriv.privacy.randomness import RandomStream
from fedpriv.privacy.unit import Unit
from tests.federation.deployed.deployments import SIZES, Deployment, take_any_kind
from tests.federation.deployed.north_party import CLEAR, answer, noisy, north, party, query

if TYPE_CHECKING:
    from pathlib import Path


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
