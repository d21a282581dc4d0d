"""A bundle is checked offline: what was changed, added, left out or signed by another is found."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.statement.signed import NotCanonical
from fedpriv.privacy.statement.signed_files import read_signed_files, sign_files
from fedpriv.simulations.dossier import verifying
from fedpriv.simulations.dossier.bundle import MANIFEST, write_bundle
from fedpriv.simulations.dossier.evidence import Evidence, model_hash
from fedpriv.simulations.dossier.verifying import verify_bundle
from tests.federation.deployed.statement_scenes import Scene
from tests.simulations.dossier.scenes import STUDY, deployed, released

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from fedpriv.federation.deployed.statements.statement_document import Finding
    from tests.simulations.conftest import Command

DAY = "2026-07-01"


def bundled(run: Path, out: Path, *, key: Ed25519PrivateKey | None = None) -> Path:
    signer = key or Ed25519PrivateKey.generate()
    evidence = Evidence.of_run(run)
    write_bundle(out, evidence, signer, models=model_hash(run), signed_on=DAY)
    return out


def checks(bundle: Path, **known: Any) -> dict[str, Finding]:
    verdict = verify_bundle(bundle / MANIFEST, **known).verdict
    return {each.check: each for each in verdict.findings}


def signed_again(
    bundle: Path, changes: Mapping[str, bytes], *, told: Mapping[str, Any] | None = None
) -> None:
    """What somebody does who has a key, and wants something else to be read."""
    signed = read_signed_files((bundle / MANIFEST).read_bytes())
    for name, data in changes.items():
        (bundle / name).write_bytes(data)
    files = {name: (bundle / name).read_bytes() for name in signed.files}
    again = sign_files(files, Ed25519PrivateKey.generate(), about={**signed.about, **(told or {})})
    (bundle / MANIFEST).write_text(again.to_text())


def test_a_bundle_of_a_release_holds_with_its_ledger_and_its_signer(
    fedpriv: Command, tmp_path: Path
) -> None:
    released(fedpriv, tmp_path)
    key = Ed25519PrivateKey.generate()
    out = bundled(tmp_path / "run", tmp_path / "out", key=key)
    signer = key.public_key().public_bytes_raw().hex()
    book = tmp_path / "own.ledger"
    found = fedpriv("verify", out, "--signer", signer, "--ledger", book, "--json").json()
    assert found["sound"] is True
    passed = {each["check"] for each in found["findings"] if each["passed"]}
    wanted = "signature signer files dossier run registry releases epsilon ledger"
    assert passed >= {*wanted.split(), "other forms"}
    said = fedpriv("verify", out / MANIFEST)
    assert said.code == 0
    assert "The dossier holds." in said.out
    assert fedpriv("verify", out, "--signer", "00" * 32).code == 1


def test_every_changed_byte_is_found(fedpriv: Command, tmp_path: Path) -> None:
    out = bundled(released(fedpriv, tmp_path), tmp_path / "out")
    for path in sorted(each for each in out.rglob("*") if each.is_file()):
        whole = path.read_bytes()
        middle = len(whole) // 2
        path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
        done = fedpriv("verify", out)
        assert done.code == 1, path
        assert "FAILED" in done.out
        path.write_bytes(whole)
    assert fedpriv("verify", out).code == 0


def test_a_file_more_or_less_is_found(fedpriv: Command, tmp_path: Path) -> None:
    out = bundled(released(fedpriv, tmp_path), tmp_path / "out")
    (out / "evidence" / "more.txt").write_text("believe me")
    assert "is among the files, but not signed" in checks(out)["files"].words
    (out / "evidence" / "more.txt").unlink()
    (out / "registry.yaml").unlink()
    assert "is signed for, and missing" in checks(out)["files"].words


def test_names_that_lead_out_of_the_folder_are_not_followed(
    fedpriv: Command, tmp_path: Path
) -> None:
    out = bundled(released(fedpriv, tmp_path), tmp_path / "out")
    files = {"../own.ledger": (tmp_path / "own.ledger").read_bytes()}
    kind = {"kind": "fedpriv dossier"}
    manifest = sign_files(files, Ed25519PrivateKey.generate(), about=kind)
    (out / MANIFEST).write_text(manifest.to_text())
    assert "no dossier has a file '../own.ledger'" in checks(out)["files"].words


def test_who_signs_again_cannot_say_what_does_not_follow(fedpriv: Command, tmp_path: Path) -> None:
    out = bundled(released(fedpriv, tmp_path), tmp_path / "out")
    values = json.loads((out / "dossier.json").read_text())
    values["questions"][0]["answer"] = "All records of everybody, for ever."
    signed_again(out, {"dossier.json": json.dumps(values, indent=1).encode()})
    found = checks(out)
    assert found["signature"].passed is True
    assert found["dossier"].passed is False


@pytest.mark.parametrize("place", [("guarantee", "epsilon"), ("guarantee", "gdp_mu")])
def test_a_smaller_loss_than_the_releases_cost_is_found(
    fedpriv: Command, tmp_path: Path, place: tuple[str, str]
) -> None:
    """The whole bundle is made of the lie, and signed: the releases tell."""
    run = released(fedpriv, tmp_path)
    statement = json.loads((run / "statement.json").read_text())
    statement[place[0]][place[1]] /= 2
    (run / "statement.json").write_text(json.dumps(statement))
    found = checks(bundled(run, tmp_path / "out"))
    assert found["dossier"].passed is True
    assert found["epsilon" if place[1] == "epsilon" else "other forms"].passed is False


def test_less_noise_than_was_paid_for_is_found(fedpriv: Command, tmp_path: Path) -> None:
    run = released(fedpriv, tmp_path)
    statement = json.loads((run / "statement.json").read_text())
    statement["plan"]["mechanisms"][0]["stddev"] /= 2
    (run / "statement.json").write_text(json.dumps(statement))
    (run / "plan.json").write_text(json.dumps(statement["plan"]))
    assert checks(bundled(run, tmp_path / "out"))["releases"].passed is False


def test_a_tuning_that_was_paid_for_is_computed_again(fedpriv: Command, tmp_path: Path) -> None:
    tuned = (
        STUDY.replace('"synthetic"', '"synthetic"\npublic_test = true')
        + '[tuning]\non = "private"\nexpected_trials = 3.0\neta = 0.0\n'
        + '[tuning.grid]\n"strategy.learning_rate" = [0.5, 1.0]\n'
    )
    run = released(fedpriv, tmp_path, tuned)
    found = checks(bundled(run, tmp_path / "out"))
    wanted = ("releases", "epsilon", "other forms", "dossier", "text", "registry")
    assert all(found[name].passed for name in wanted)
    statement = json.loads((run / "statement.json").read_text())
    for place, change in (("plan", "releases"), ("guarantee", "epsilon")):
        lie = json.loads(json.dumps(statement))
        if place == "plan":
            lie["plan"]["mechanisms"][0]["base_mu"] /= 2
        else:
            lie["guarantee"]["epsilon"] /= 2
            lie["plan"]["epsilon"] /= 2
        (run / "statement.json").write_text(json.dumps(lie))
        (run / "plan.json").write_text(json.dumps(lie["plan"]))
        assert checks(bundled(run, tmp_path / place))[change].passed is False


def test_another_head_than_the_statement_s_is_found(fedpriv: Command, tmp_path: Path) -> None:
    out = bundled(released(fedpriv, tmp_path), tmp_path / "out")
    signed_again(out, {}, told={"ledger": {"head": "0" * 64, "rows": 1}})
    assert checks(out)["run"].passed is False


def test_an_entry_with_other_numbers_is_found(fedpriv: Command, tmp_path: Path) -> None:
    run = released(fedpriv, tmp_path)
    entry = (run / "statement.yaml").read_text()
    (run / "statement.yaml").write_text(entry.replace("delta: 1.0e-06", "delta: 1.0e-09"))
    found = checks(bundled(run, tmp_path / "out"))["registry"]
    assert found.passed is False
    assert "privacy_loss.privacy_parameters.delta is another" in found.words


def test_a_ledger_must_have_the_head(fedpriv: Command, tmp_path: Path) -> None:
    out = bundled(released(fedpriv, tmp_path), tmp_path / "out")
    other = tmp_path / "other"
    other.mkdir()
    released(fedpriv, other)
    with Ledger.open(tmp_path / "own.ledger", read_only=True) as book:
        assert checks(out, ledger=book)["ledger"].passed is True
    with Ledger.open(other / "own.ledger", read_only=True) as book:
        assert checks(out, ledger=book)["ledger"].passed is False


def test_a_deployed_run_is_checked_down_to_its_signatures(tmp_path: Path) -> None:
    scene = Scene.make()
    out = bundled(deployed(scene, tmp_path / "run"), tmp_path / "out")
    found = checks(out, roster=scene.pinned)
    wanted = ("roster", "server", "threshold", "n_min", "trust", "epsilon", "signed for", "dossier")
    assert {name: found[name].passed for name in wanted} == dict.fromkeys(wanted, True)
    values = json.loads((out / "dossier.json").read_text())
    asked = {each["id"]: each["answer"] for each in values["questions"]}
    assert values["kind"] == "deployed"
    assert "masked on their way" in asked["collection"]
    assert "each party adds a share" in asked["mechanism"]
    verdict = verify_bundle(out / MANIFEST, roster=scene.pinned).verdict
    assert len(verdict.missing) == 5  # the parties: nobody asked them
    other = Scene.make()
    assert checks(out, roster=other.pinned)["roster"].passed is False


def test_a_deployed_statement_of_another_experiment_or_model_is_found(tmp_path: Path) -> None:
    scene = Scene.make()
    run = deployed(scene, tmp_path / "run")
    (run / "model.npz").write_bytes(b"others")
    assert checks(bundled(run, tmp_path / "a"))["signed for"].passed is False
    (run / "model.npz").write_bytes(b"parameters")
    (run / "config.toml").write_bytes(b'[data]\nname = "others"\n')
    assert checks(bundled(run, tmp_path / "b"))["signed for"].passed is False


@pytest.mark.parametrize(
    "others",
    [
        {"model.npz": "0f" * 32, "statistics.json": "TRUE"},
        {"model.npz": "TRUE", "better.npz": "0f" * 32},
        {"better.npz": "TRUE"},
        {},
    ],
    ids=lambda others: " ".join(others) or "none",
)
def test_no_other_model_goes_with_the_one_that_parties_signed(
    tmp_path: Path, others: dict[str, str]
) -> None:
    """The digest was looked for anywhere: people compared their model with the one beside it."""
    scene = Scene.make()
    out = bundled(deployed(scene, tmp_path / "run"), tmp_path / "out")
    assert checks(out)["signed for"].passed is True
    true = model_hash(tmp_path / "run")["model.npz"]
    released = {name: digest.replace("TRUE", true) for name, digest in others.items()}
    signed_again(out, {}, told={"released": released})
    assert checks(out, roster=scene.pinned)["signed for"].passed is False


def test_what_nobody_looks_at_is_not_signed_for(fedpriv: Command, tmp_path: Path) -> None:
    out = bundled(released(fedpriv, tmp_path), tmp_path / "out")
    signed_again(out, {}, told={"approved by": "everybody"})
    assert "'approved by', too" in checks(out)["run"].words
    assert fedpriv("verify", out).code == 1


def test_files_of_two_runs_make_no_dossier(fedpriv: Command, tmp_path: Path) -> None:
    run = released(fedpriv, tmp_path)
    result = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps(result | {"run": "another"}))
    with pytest.raises(ValueError, match="of different runs"):
        Evidence.of_run(run)
    (run / "result.json").write_text(json.dumps(result))
    (run / "plan.json").write_text("{}")
    with pytest.raises(ValueError, match="is not the plan of"):
        Evidence.of_run(run)


def test_no_version_excuses_what_does_not_follow(fedpriv: Command, tmp_path: Path) -> None:
    """Who signs says which version made it: any page at all held, under a version of one's own."""
    out = bundled(released(fedpriv, tmp_path), tmp_path / "out")
    told = {"made_with": "9.9.9"}
    signed_again(out, {}, told=told)
    assert checks(out)["dossier"].passed is True
    page = (out / "dossier.html").read_text().replace("(1, 1e-06)", "(0.001, 1e-06)")
    signed_again(out, {"dossier.html": page.encode()}, told=told)
    found = checks(out)["dossier"]
    assert found.passed is False
    assert "verify it with that one" in found.words
    assert fedpriv("verify", out).code == 1


def test_a_page_that_cannot_be_drawn_here_is_not_vouched_for(
    fedpriv: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = bundled(released(fedpriv, tmp_path), tmp_path / "out")
    monkeypatch.setattr(verifying, "find_spec", lambda _name: None)
    found = checks(out)
    assert found["page"].passed is None
    assert "page" not in found["dossier"].words


def test_a_manifest_of_something_else_is_refused(tmp_path: Path, fedpriv: Command) -> None:
    key = Ed25519PrivateKey.generate()
    (tmp_path / MANIFEST).write_text(sign_files({}, key, about={"kind": "lunch"}).to_text())
    with pytest.raises(NotCanonical, match="does not sign for a dossier"):
        verify_bundle(tmp_path / MANIFEST)
    assert fedpriv("verify", tmp_path).code == 1
    (tmp_path / MANIFEST).unlink()
    done = fedpriv("verify", tmp_path, "--signer", "00" * 32)
    assert done.code == 2
    assert "--signer is for a dossier" in done.message


def test_a_deployed_run_without_its_signed_statement_is_refused(tmp_path: Path) -> None:
    """Or who leaves it out would have a dossier that nobody's signature stands behind."""
    run = deployed(Scene.make(), tmp_path / "run")
    out = bundled(run, tmp_path / "out")
    (run / "statement.signed.json").unlink()
    with pytest.raises(ValueError, match="a deployed run has a statement"):
        Evidence.of_run(run)
    (out / "evidence" / "statement.signed.json").unlink()
    signed = read_signed_files((out / MANIFEST).read_bytes())
    names = signed.files.keys() - {"evidence/statement.signed.json"}
    files = {name: (out / name).read_bytes() for name in names}
    again = sign_files(files, Ed25519PrivateKey.generate(), about=signed.about)
    (out / MANIFEST).write_text(again.to_text())
    assert checks(out)["evidence"].passed is False


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("statement.json", b'{"status": "real", "guarantee": {}}'),
        ("statement.json", b"[" * 100_000),
        ("statement.yaml", b"deployment: &a [x]\nb: [*a, *a]\n"),
        ("statement.yaml", b"deployment: 1\n"),
        ("result.json", b'{"run": "x", "secret": 1}'),
        ("plan.json", b"\xff"),
        ("config.toml", b"= ="),
    ],
)
def test_evidence_that_makes_no_dossier_is_a_finding_and_no_trace(
    fedpriv: Command, tmp_path: Path, name: str, data: bytes
) -> None:
    out = bundled(released(fedpriv, tmp_path), tmp_path / "out")
    signed_again(out, {f"evidence/{name}": data})
    done = fedpriv("verify", out)
    assert done.code == 1
    assert "FAILED" in done.out


def test_what_is_no_file_is_not_waited_for(fedpriv: Command, tmp_path: Path) -> None:
    out = bundled(released(fedpriv, tmp_path), tmp_path / "out")
    (out / "dossier.json").unlink()
    os.mkfifo(out / "dossier.json")
    done = fedpriv("verify", out)
    assert done.code == 1
    assert "is no file" in done.out
    (out / "dossier.json").unlink()
    (out / "dossier.json").symlink_to(tmp_path)
    assert fedpriv("verify", out).code == 1
