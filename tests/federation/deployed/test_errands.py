"""Errands on disk: a statement attested, a model handed over, a run cancelled, somebody away."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from dataclasses import fields, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from fedpriv._toml import parse_toml, to_toml
from fedpriv.federation.deployed.errands import Errands
from fedpriv.federation.deployed.journal import Journal, LedgerMark
from fedpriv.federation.engines.courier import Patience
from fedpriv.federation.engines.grid import RoundFailed
from fedpriv.federation.protocol.errands import Attest, Attested, Cancel, Cancelled, HandOver
from fedpriv.federation.protocol.wire import Reply, Request
from fedpriv.privacy.statement.facts import TrustModel
from fedpriv.privacy.statement.signed import read_signed, sign_as_party, sign_as_server
from fedpriv.privacy.statement.statement import who_sees_what
from fedpriv.secagg.errors import WrongRound
from fedpriv.simulations.cli import app
from fedpriv.simulations.deploy.keys import read_identity
from fedpriv.simulations.deploy.members.roster import write_roster
from fedpriv.simulations.deploy.run.closed import why_closed
from fedpriv.simulations.deploy.run.jobs import cancelling
from fedpriv.simulations.deploy.run.jobs.dispatch import carry_out, tell_cancelled
from fedpriv.simulations.deploy.run.public_facts import prepare_deployed
from fedpriv.simulations.deploy.run.server import deployed_federation, open_session
from fedpriv.simulations.engines.parties import protection
from fedpriv.simulations.experiment.file import parse_experiment
from fedpriv.simulations.run.files import read_json, write_json
from fedpriv.simulations.run.outcome import SIGNED
from fedpriv.simulations.run.prepare import build_strategy
from tests.federation.deployed.deployments import FOUR, Deployment
from tests.federation.deployed.test_deployed_run import SHARES, InterruptedGrid, PartialGrid

if TYPE_CHECKING:
    from pathlib import Path


RUN, ROUND = bytes(range(32)), {"round": 0, "party": 0}
NAMES = FOUR["names"]
TWICE = {"epsilon": 8.0}  # enough for a run that is cancelled, and another one
PATIENCE = Patience(arrival=0.2, reply=30.0, poll=0.01)  # whoever is there answers at once
CLEAR: dict[str, Any] = {
    **FOUR,
    "policy": {"secure_aggregation": "off"},
    "experiment": {"run": {"secure_aggregation": "off"}},
}


class Power(RuntimeError):
    """A cut."""


def cut() -> None:
    raise Power("off")


def grid_of(
    deployment: Deployment, kind: type[PartialGrid], *away: str, config: str | None = None
) -> Any:
    """The nodes of a deployment, without some."""
    grid = deployment.grid(config)
    grid.__class__ = kind
    assert isinstance(grid, PartialGrid)
    grid.missing = {NAMES.index(name) for name in away}
    return grid


def done(job: str, deployment: Deployment, out: Path, *away: str) -> dict[str, str]:
    """The ServerApp's part of a job."""
    text = (out / "config.toml").read_text()
    told = {
        "config": text,
        "roster": str(deployment.server / "roster.toml"),
        "output": str(out),
        "job": job,
    }
    grid = grid_of(deployment, PartialGrid, *away, config=text)
    return carry_out(told, grid, seal=deployment.seal(text), patience=PATIENCE)


def interrupted(deployment: Deployment, out: Path, *, step: str, away: str) -> None:
    """A run in which the server fails before a step, while one party is not there."""
    grid = grid_of(deployment, InterruptedGrid, away)
    grid.step, grid.between = step, cut
    with pytest.raises(Power):
        deployment.run(out, grid=grid)


def verified(*arguments: object) -> tuple[int, dict[str, Any]]:
    """What `fedpriv verify` says."""
    found = CliRunner().invoke(app, ["verify", *map(str, arguments), "--json"])
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found.exit_code, json.loads(found.stdout)


def handled(deployment: Deployment, name: str, message: Any, *, config: str | None = None) -> Reply:
    """What a party says to one message of its server."""
    request = Request(messages=(message,))
    return Reply.from_bytes(deployment.host(name, config).handle(request.to_bytes()))


def test_a_run_whose_statement_is_signed_is_over(tmp_path: Path) -> None:
    """A server had the statement signed, and asked for four more releases of the same run.

    They were paid for, and the statement, which told of half of what the run had cost, verified.
    """
    deployment = Deployment(folder=tmp_path, **FOUR, budget=TWICE)
    out = tmp_path / "server" / "runs" / "a"
    deployment.run(out)
    prepared = prepare_deployed(
        parse_experiment(parse_toml(deployment.config(), "experiment")),
        sizes=deployment.roster.sizes,
    )
    asked = build_strategy(prepared, run=read_json(out / "private" / "run.json")["run"]).ask()
    assert asked is not None
    paid = deployment.reserved("north")

    def go_on(release: int) -> None:
        deployed_federation(
            prepared, deployment.roster, deployment.grid(), seal=deployment.seal()
        ).sum(replace(asked, round=release))

    assert set(done("attest", deployment, out).values()) == {"signed"}
    with pytest.raises(RoundFailed, match="has signed the statement of it"):
        go_on(len(paid))
    assert deployment.reserved("north") == paid
    assert set(done("attest", deployment, out).values()) == {"signed"}  # again, as before
    state = deployment.home("north") / "state" / "attested"
    assert [path.stat().st_mode & 0o777 for path in state.iterdir()] == [0o600]
    for name in NAMES:  # as if nobody had remembered
        shutil.rmtree(deployment.home(name) / "state" / "attested")
    go_on(len(paid))
    books = ("--roster", deployment.server / "roster.toml", "--ledger")
    status, said = verified(out, *books, deployment.home("north") / "north.ledger")
    assert (status, said["sound"]) == (1, False)  # and it shows in the ledger


@pytest.mark.parametrize("scene", [FOUR, SHARES, CLEAR], ids=["server", "shares", "clear"])
def test_a_run_is_attested_handed_over_and_verified(scene: dict[str, Any], tmp_path: Path) -> None:
    deployment, out = Deployment(folder=tmp_path, **scene), tmp_path / "server" / "runs" / "a"
    deployment.run(out)
    roster = deployment.server / "roster.toml"
    assert done("attest", deployment, out, "east") == {
        "north": "signed",
        "east": "not there",
        "south": "signed",
        "west": "signed",
    }
    status, said = verified(out, "--roster", roster)
    assert (status, said["sound"], said["missing"]) == (0, True, ["east"])
    assert verified(out, "--roster", roster, "--complete")[0] == 1
    # Late parties sign when the model is handed over.
    assert set(done("handover", deployment, out).values()) == {"has it"}
    status, said = verified(out / SIGNED, "--roster", roster, "--complete")
    assert (status, said["missing"]) == (0, [])
    n_min = next(each["words"] for each in said["findings"] if each["check"] == "n_min")
    assert n_min.startswith("n_min = 2" if scene is SHARES else "the noise is added by the server")
    # At the party: the same model, the same statement, and predictions from them.
    (place,) = (deployment.home("east") / "models").iterdir()
    assert (place / "model.npz").read_bytes() == (out / "model.npz").read_bytes()
    own = deployment.home("east")
    assert verified(place, "--roster", own / "roster.toml", "--ledger", own / "east.ledger")[0] == 0
    predicted = CliRunner().invoke(app, ["predict", str(place), str(own / "records.csv"), "--json"])
    assert len(json.loads(predicted.stdout)["prediction"]) == deployment.sizes[1]


def test_who_paid_for_nothing_signs_nothing_and_gets_no_model(tmp_path: Path) -> None:
    deployment, out = Deployment(folder=tmp_path, **FOUR), tmp_path / "server" / "runs" / "a"
    deployment.run(out, grid=grid_of(deployment, PartialGrid, "east"))
    for job in ("attest", "handover"):
        words = done(job, deployment, out)
        assert words.pop("east").startswith("refused: QueryRefused: this party has")
        assert set(words.values()) == {"signed" if job == "attest" else "has it"}
    assert verified(out)[1]["missing"] == ["east"]
    assert not (deployment.home("east") / "models").exists()


def test_a_party_believes_no_other_statement_or_model(tmp_path: Path) -> None:
    deployment, out = Deployment(folder=tmp_path, **FOUR), tmp_path / "server" / "runs" / "a"
    deployment.run(out)
    done("attest", deployment, out, "south")  # which would sign no other one at all
    signed = read_signed((out / SIGNED).read_bytes())
    text, model = (out / SIGNED).read_bytes(), (out / "model.npz").read_bytes()
    # A statement that the true server signed, about another model, or with another epsilon.
    key = read_identity(deployment.server / "identity.key")
    changed = {**signed.document, "model": sha256(b"").hexdigest()}
    cheaper = json.loads(json.dumps(signed.document))
    for part in ("guarantee", "plan"):
        cheaper["statement"][part]["epsilon"] /= 2
    renamed = json.loads(json.dumps(signed.document))
    renamed["statement"]["run"]["data"] = "public data"
    forged = {**signed.document, "server": deployment.roster.identities[0].hex()}
    other = sign_as_server(forged, read_identity(deployment.home("north") / "identity.key"))
    cases: dict[str, Any] = {
        "not the one that the statement names": HandOver(
            run=RUN, **ROUND, statement=sign_as_server(changed, key).to_text().encode(), model=model
        ),
        "the statement is wrong (epsilon)": Attest(
            run=RUN, **ROUND, statement=sign_as_server(cheaper, key).to_text().encode()
        ),
        "is wrong (epsilon)": HandOver(
            run=RUN, **ROUND, statement=sign_as_server(cheaper, key).to_text().encode(), model=model
        ),
        "run.data of the statement is not what the experiment says": HandOver(
            run=RUN, **ROUND, statement=sign_as_server(renamed, key).to_text().encode(), model=model
        ),
        "cannot be read": Attest(run=RUN, **ROUND, statement=text[:-1]),
        "not signed by this party's server": HandOver(
            run=RUN, **ROUND, statement=other.to_text().encode(), model=model
        ),
    }
    for words, message in cases.items():
        reply = handled(deployment, "south", message, config=(out / "config.toml").read_text())
        assert words in reply.refusal, reply.refusal
        assert not reply.messages
    assert not (deployment.home("south") / "models").exists()


def test_no_party_signs_a_statement_that_leaves_out_what_is_taken_from_somebodys_word(
    tmp_path: Path,
) -> None:
    """Of metrics on test records, that these are public: the experiment says so."""
    deployment = Deployment(folder=tmp_path, **FOUR)
    public, out = tmp_path / "public.csv", tmp_path / "server" / "runs" / "a"
    public.write_text((deployment.home("south") / "records.csv").read_text())
    config = deployment.config(data={"path": str(public), "public_test": True})
    deployment.run(out, config=config)
    statement = read_json(out / "statement.json")
    assert "declared to be public" in statement["run"]["assumptions"][0]
    silent = {**statement, "run": {**statement["run"], "assumptions": []}, "warnings": []}
    write_json(out / "statement.json", silent)
    refused = done("attest", deployment, out)
    assert all("run.assumptions of the statement is not what" in said for said in refused.values())
    write_json(out / "statement.json", statement)
    (out / SIGNED).unlink(missing_ok=True)
    assert set(done("attest", deployment, out).values()) == {"signed"}


@pytest.mark.parametrize(
    ("policy", "ran", "told"),
    [
        (
            {"secure_aggregation": "off"},
            {"secure_aggregation": "off"},
            {"secure_aggregation": "active"},
        ),
        ({}, {}, {"least_parties": 4}),
    ],
)
def test_no_party_signs_for_protection_that_a_run_did_not_have(
    policy: dict[str, Any], ran: dict[str, Any], told: dict[str, Any], tmp_path: Path
) -> None:
    """Every party signed that a run had masks whose answers it had sent in the clear.

    The name of a run had no protection in it, and so was that of an experiment under masks, too.
    """
    deployment = Deployment(folder=tmp_path, **FOUR, policy=policy, experiment={"run": ran})
    out = tmp_path / "server" / "runs" / "a"
    deployment.run(out)
    shown = parse_experiment(parse_toml((out / "config.toml").read_text(), "")).replaced(run=told)
    (out / "config.toml").write_text(to_toml(shown.to_dict()))
    masks = protection(shown).parameters(len(NAMES))
    statement = read_json(out / "statement.json")
    statement["trust"] |= {
        "secure_aggregation": masks.mode.value,
        "colluding_parties": masks.colluders,
        "dropped_parties": masks.missing,
        "least_parties": masks.minimum,
        "tolerates": masks.sentence(),
    }
    plan, trust = statement["plan"], statement["trust"]
    trust["sees"] = who_sees_what(
        TrustModel(**{each.name: trust[each.name] for each in fields(TrustModel)}),
        share=None,
        **{name: plan[name] for name in ("noise_at", "released", "parties")},
    )
    statement["warnings"] = []
    write_json(out / "statement.json", statement)
    words = done("attest", deployment, out)
    assert all("of another experiment than this party is shown" in said for said in words.values())
    assert set(words) == set(NAMES)
    status, said = verified(out, "--roster", deployment.server / "roster.toml")
    assert (status, said["missing"]) == (0, list(NAMES))  # the server alone says so


@pytest.mark.parametrize("step", ["answer", "reveal"])
def test_a_cancelled_run_is_left_for_good(step: str, tmp_path: Path) -> None:
    deployment = Deployment(folder=tmp_path, **FOUR, budget=TWICE)
    out = tmp_path / "server" / "runs" / "a"
    interrupted(deployment, out, step=step, away="west")
    spent = {name: paid(deployment, name) for name in NAMES}
    assert any(seat.stat().st_size for seat in seats(deployment, "north"))

    cancelling.record(out)
    words = done("cancel", deployment, out, "south", "west")
    assert words == {
        "north": "left it",
        "east": "left it",
        "south": "not there",
        "west": "not there",
    }
    for name in ("north", "east"):
        closed = seats(deployment, name)
        assert closed
        assert not any(seat.stat().st_size for seat in closed)
        assert not any(
            path.stat().st_size for path in (state(deployment, name) / "answers").iterdir()
        )
    assert spent == {name: paid(deployment, name) for name in NAMES}

    # It is not taken up again at the server, nor by a server that has forgotten that.
    config = {
        "config": deployment.config(),
        "roster": str(deployment.server / "roster.toml"),
        "output": str(out),
    }
    with pytest.raises(ValueError, match="closed for good: it was cancelled"):
        open_session(config)
    (out / "private" / "cancelled.json").rename(tmp_path / "hidden")
    with pytest.raises(RuntimeError, match="this run was cancelled, for good"):
        deployment.run(out)
    (tmp_path / "hidden").rename(out / "private" / "cancelled.json")

    # Who was away is told before the next run, which is as good as any.
    tell_cancelled(
        out.parent,
        deployment.grid(),
        names=NAMES,
        seal=deployment.seal(),
        patience=PATIENCE,
    )
    assert not cancelling.untold(out.parent, NAMES)
    deployment.run(tmp_path / "server" / "runs" / "b", config=deployment.config(run={"seed": 1}))
    name = json.loads((out / "private" / "run.json").read_text())["run"]
    for party in NAMES:
        journal: Journal = deployment.host(party).store
        assert journal.cancelled(name)
        rest = [seat for seat in seats(deployment, party) if seat.stat().st_size]
        assert len(rest) == 1  # that of the second run


def test_cancelling_does_not_make_a_party_new(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    deployment = Deployment(folder=tmp_path, **FOUR, budget=TWICE)
    out = tmp_path / "server" / "runs" / "a"
    interrupted(deployment, out, step="reveal", away="west")
    cancelling.record(out)
    done("cancel", deployment, out)
    (deployment.home("north") / "north.ledger").unlink()
    (state(deployment, "north") / "ledger").unlink()
    deployment.run(tmp_path / "server" / "runs" / "b")
    assert "its ledger is gone" in caplog.text
    assert not (deployment.home("north") / "north.ledger").exists()


def test_a_run_that_is_finished_or_unknown_is_not_cancelled(tmp_path: Path) -> None:
    deployment, out = Deployment(folder=tmp_path, **FOUR), tmp_path / "server" / "runs" / "a"
    with pytest.raises(ValueError, match="no directory of a run"):
        cancelling.record(out)
    deployment.run(out)
    with pytest.raises(ValueError, match="is finished"):
        cancelling.record(out)
    # And if it is finished while it is being cancelled, no party is told to leave it.
    result = (out / "result.json").rename(tmp_path / "result.json")
    cancelling.record(out)
    assert cancelling.untold(out.parent, NAMES) == [out]
    result.rename(out / "result.json")
    assert cancelling.untold(out.parent, NAMES) == []
    with pytest.raises(ValueError, match="is finished"):
        done("cancel", deployment, out)
    assert why_closed(out) == ""
    assert set(done("attest", deployment, out).values()) == {"signed"}


def test_an_errand_comes_alone_and_can_be_repeated(tmp_path: Path) -> None:
    deployment = Deployment(folder=tmp_path, **FOUR)
    cancel = Cancel(run=RUN, **ROUND, name=b"a-run", seats=RUN)
    for _ in range(2):
        (said,) = handled(deployment, "north", cancel).messages
        assert isinstance(said, Cancelled)
    two = Request(messages=(cancel, cancel)).to_bytes()
    # In company it is no errand but a step of a run that was cancelled.
    assert not Reply.from_bytes(deployment.host("north").handle(two)).messages
    assert (
        "32 bytes each"
        in handled(
            deployment, "north", Cancel(run=RUN, **ROUND, name=b"a-run", seats=RUN[1:])
        ).refusal
    )


def test_a_cancelled_run_leaves_nothing_of_seats_that_were_not_taken(tmp_path: Path) -> None:
    """A server that cancels what never was, again and again, fills no disk with a thousand each."""
    deployment = Deployment(folder=tmp_path, **FOUR)
    many = b"".join(bytes([high, low]) * 16 for high in range(4) for low in range(256))
    assert handled(deployment, "north", Cancel(run=RUN, **ROUND, name=b"a", seats=many)).messages
    assert not seats(deployment, "north")
    assert not list((deployment.home("north") / "state").glob("cancelled/*"))


def test_a_party_joins_only_so_many_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each a name is kept for ever: a server that begins run after run fills no disk."""
    monkeypatch.setattr("fedpriv.federation.deployed.journal._MOST_JOINED", 2)
    journal = Journal(tmp_path)
    with journal.held():
        for run in (RUN, RUN[::-1]):
            journal.keep(replace(journal.memory(run), run=run))
        with pytest.raises(WrongRound, match="has joined 2 runs"):
            journal.memory(bytes(32))
        assert journal.memory(RUN).run == RUN  # where it has its place


def test_a_run_that_was_left_with_a_backup_is_not_attested(tmp_path: Path) -> None:
    """What the party answered after the backup its ledger does not know."""
    deployment, out = Deployment(folder=tmp_path, **FOUR), tmp_path / "server" / "runs" / "a"
    deployment.run(out)
    with deployment.ledger("north") as ledger:
        then = LedgerMark.of(ledger)
    Journal(deployment.home("north") / "state").leave(ledger=then)
    words = done("attest", deployment, out)
    assert "put back from a backup" in words.pop("north")
    assert set(words.values()) == {"signed"}


def test_a_cancelled_run_is_not_attested(tmp_path: Path) -> None:
    deployment, out = Deployment(folder=tmp_path, **FOUR), tmp_path / "server" / "runs" / "a"
    deployment.run(out)
    done("attest", deployment, out, "north")
    name = json.loads((out / "private" / "run.json").read_text())["run"]
    handled(deployment, "north", Cancel(run=RUN, **ROUND, name=name.encode(), seats=b""))
    assert "was cancelled" in done("attest", deployment, out)["north"]


def seats(deployment: Deployment, name: str) -> list[Path]:
    return sorted((state(deployment, name) / "seats").glob("[!.]*"))


def state(deployment: Deployment, name: str) -> Path:
    return deployment.home(name) / "state"


def paid(deployment: Deployment, name: str) -> list[tuple[str, int]]:
    if not (deployment.home(name) / f"{name}.ledger").exists():
        return []
    with closing(deployment.ledger(name)) as ledger:
        return [(row.run, row.round) for row in ledger.rows() if row.kind == "reserved"]


def test_a_changed_file_fails_and_a_missing_one_is_no_input(tmp_path: Path) -> None:
    deployment, out = Deployment(folder=tmp_path, **FOUR), tmp_path / "server" / "runs" / "a"
    deployment.run(out)
    done("attest", deployment, out)
    data = (out / SIGNED).read_bytes()
    changed = tmp_path / "changed.json"
    for place in range(0, len(data), 97):
        changed.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        assert verified(changed)[0] == 1
    read = ("model.npz", "statement.json", "config.toml", "statement.txt", "statement.yaml")
    for name in read:  # by people, beside it
        own = (out / name).read_bytes()
        what = (b"Record", b"Person") if name == "statement.yaml" else (b"0", b"1")
        (out / name).write_bytes(own.replace(*what, 1))
        status, said = verified(out)
        assert status == 1
        assert [each["words"] for each in said["findings"] if each["passed"] is False] == [
            f"{name} beside it: not what was signed."
        ]
        (out / name).write_bytes(own)
    assert verified(out)[0] == 0
    entry = (out / "statement.yaml").read_text()
    (out / "statement.yaml").write_text(entry.replace("TO BE FILLED IN", "the clinics"))
    assert verified(out)[0] == 0
    (out / "statement.yaml").write_text("- 1")
    assert verified(out)[0] == 1
    (out / "statement.yaml").unlink()
    tampered = deployment.home("north") / "north.ledger"
    with closing(sqlite3.connect(tampered)) as database:
        database.executescript("DROP TRIGGER fixed; UPDATE rows SET time = 0;")
    assert verified(out, "--ledger", tampered)[0] == 1
    with pytest.raises(ValueError, match="cannot be read"):
        CliRunner().invoke(app, ["verify", str(tmp_path / "none")], catch_exceptions=False)


@pytest.mark.parametrize(
    ("strategy", "privacy", "noise_at"),
    [
        ({"name": "output-perturbation"}, {"delta": 0.0}, "server"),
        ({"name": "output-perturbation", "fit": "joint"}, {}, "server"),
        ({"name": "output-perturbation"}, {"noise_at": "parties"}, "parties"),
        ({"name": "objective-perturbation"}, {}, "server"),
        ({"name": "local-output-perturbation"}, {}, "parties"),
        ({"name": "local-objective-perturbation"}, {}, "parties"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value.values())),
)
def test_every_strategy_is_attested(
    tmp_path: Path, strategy: dict[str, Any], privacy: dict[str, Any], noise_at: str
) -> None:
    """What the server states is to the digit what every party was charged."""
    deployment = Deployment(
        folder=tmp_path,
        **FOUR,
        policy={"strategies": [strategy["name"]], "noise_at": noise_at, "min_noise": 0.1},
        budget={"delta": privacy.get("delta", 1e-6)},
    )
    text = deployment.config(privacy=privacy, model={"l2": 0.1})
    text = text.replace("rounds = 4\nclip = 1.0\n", "").replace(
        'name = "gradient-perturbation"', "\n".join(f'{k} = "{v}"' for k, v in strategy.items())
    )
    out = tmp_path / "server" / "runs" / "a"
    deployment.run(out, config=text)
    assert set(done("attest", deployment, out).values()) == {"signed"}
    assert verified(out, "--roster", deployment.server / "roster.toml", "--complete")[0] == 0


@pytest.mark.parametrize("new_keys", [False, True])
def test_a_party_that_was_put_back_to_an_earlier_day_is_found_out(
    new_keys: bool, tmp_path: Path
) -> None:
    """Its whole machine: ledger and state agree with each other, and the budget is there again.

    With new keys since, it was taken for somebody who had never signed.
    """
    deployment = Deployment(folder=tmp_path, **FOUR, budget=TWICE)
    home, earlier = deployment.home("north"), tmp_path / "earlier"
    shutil.copytree(home, earlier)
    runs = tmp_path / "server" / "runs"
    deployment.run(runs / "a")
    assert set(done("attest", deployment, runs / "a").values()) == {"signed"}
    if new_keys:  # the keys of then are others than those of now
        signed = read_signed((runs / "a" / SIGNED).read_bytes())
        before = [{**each, "identity": "0f" * 32} for each in signed.document["parties"]]
        then = replace(signed, document={**signed.document, "parties": before[:1]})
        (runs / "a" / SIGNED).write_text(then.to_text())
    shutil.rmtree(home)
    shutil.copytree(earlier, home)
    deployment.run(runs / "b")
    words = done("attest", deployment, runs / "b")
    assert "another ledger than it signed with before" in words.pop("north")
    assert set(words.values()) == {"signed"}
    assert verified(runs / "b")[1]["missing"] == ["north"]


def test_who_joined_the_federation_later_gets_nothing_of_a_run_before(tmp_path: Path) -> None:
    deployment, out = Deployment(folder=tmp_path, **FOUR), tmp_path / "server" / "runs" / "a"
    deployment.run(out)
    assert set(done("attest", deployment, out).values()) == {"signed"}
    began = deployment.roster.members[:-1]
    write_roster(out / "private" / "roster.toml", replace(deployment.roster, members=began))
    assert done("handover", deployment, out) == dict.fromkeys(NAMES[:-1], "has it")
    assert not (deployment.home(NAMES[-1]) / "models").exists()


@pytest.mark.parametrize(
    "lie", [{"rows": 2**64 - 1}, {"releases": 2**64 - 1}, {"releases": 99}, {"releases": 0}]
)
def test_a_party_that_answers_nonsense_keeps_nobody_else_from_signing(
    lie: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number that no statement can have ended the job, and all other signatures were lost.

    One that no true signature has was kept, with the signature: the statement of all others did not
    verify any more, and whoever had signed it was not asked again.
    """
    deployment, out = Deployment(folder=tmp_path, **CLEAR), tmp_path / "server" / "runs" / "a"
    deployment.run(out)
    attest = Errands._attest

    def lying(self: Errands, errand: Attest) -> Attested:
        said, own = attest(self, errand), self.signatory
        if own.name != "east":
            return said
        wrong = replace(said, **lie)
        if max(wrong.rows, wrong.releases) >= 1 << 63:
            return wrong
        signed = sign_as_party(
            read_signed(errand.statement).document,
            own.identity,
            number=own.number,
            name=own.name,
            head=wrong.head.hex(),
            rows=wrong.rows,
            releases=wrong.releases,
        )
        return replace(wrong, signature=signed.signature)

    monkeypatch.setattr(Errands, "_attest", lying)
    words = done("attest", deployment, out)
    assert words.pop("east") == "sent a false signature"
    assert set(words.values()) == {"signed"}
    assert set(done("handover", deployment, out).values()) == {"has it"}
    status, said = verified(out)
    assert (status, said["missing"]) == (0, ["east"])


def test_a_party_signs_one_statement_of_a_run_and_takes_over_its_model(tmp_path: Path) -> None:
    """A server had two statements signed by everybody: one run, two models, both complete."""
    deployment, out = Deployment(folder=tmp_path, **CLEAR), tmp_path / "server" / "runs" / "a"
    deployment.run(out)
    assert set(done("attest", deployment, out).values()) == {"signed"}
    key, text = read_identity(deployment.server / "identity.key"), (out / "config.toml").read_text()
    signed = read_signed((out / SIGNED).read_bytes())
    other = (out / "model.npz").read_bytes() + b"\0"  # which is an archive still
    document = {**signed.document, "model": sha256(other).hexdigest()}
    second = sign_as_server(document, key).to_text().encode()
    for message in (
        Attest(run=RUN, **ROUND, statement=second),
        HandOver(run=RUN, **ROUND, statement=second, model=other),
    ):
        reply = handled(deployment, "north", message, config=text)
        assert "has signed another statement of this run" in reply.refusal
        assert not reply.messages
    again = Attest(run=RUN, **ROUND, statement=signed.to_text().encode())
    assert handled(deployment, "north", again, config=text).messages
    assert set(done("handover", deployment, out).values()) == {"has it"}
