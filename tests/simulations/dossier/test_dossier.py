"""`fedpriv dossier`: what it says, what it reads, what it refuses."""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from fedpriv._toml import to_toml
from fedpriv.simulations.dossier import evidence as reading
from fedpriv.simulations.dossier.bundle import made
from fedpriv.simulations.dossier.evidence import Evidence
from fedpriv.simulations.dossier.questions import NOT_COVERED, QUESTIONS
from fedpriv.simulations.run import release_outcome as outcome
from tests.privacy.statement.test_registry import RULES, complaints
from tests.simulations.describe.scenes import study as people
from tests.simulations.describe.scenes import written
from tests.simulations.dossier.scenes import STUDY, released, simulated, study
from tests.simulations.report.browser import CHROMIUM, DRIVER, MISSING, browser

if TYPE_CHECKING:
    from pathlib import Path

    from tests.simulations.conftest import Command


def dossier(fedpriv: Command, run: Path, folder: Path, *more: object) -> tuple[Any, Path]:
    out = folder / "dossier"
    options = ("--new-key", folder / "key.pem", "--out", out, *more, "--json")
    return fedpriv("dossier", run, *options).json(), out


def test_a_release_is_told_with_the_numbers_of_its_statement(
    fedpriv: Command, tmp_path: Path
) -> None:
    run = released(fedpriv, tmp_path)
    told, out = dossier(fedpriv, run, tmp_path)
    values = json.loads((out / "dossier.json").read_text())
    statement = json.loads((run / "statement.json").read_text())
    assert values["guarantee"] == statement["guarantee"]
    assert values["kind"] == "released in one place"
    assert told["ledger"] == {k: statement["ledger"][k] for k in ("head", "rows")}
    assert told["simulated"] is False
    assert told["files"] == sorted(
        str(path.relative_to(out))
        for path in out.rglob("*")
        if path.is_file() and path.name != "dossier.signed.json"
    )
    assert (tmp_path / "key.pem").stat().st_mode & 0o077 == 0
    asked = {each["id"]: each for each in values["questions"]}
    assert asked.keys() == {each.id for each in QUESTIONS}
    assert (
        "ε ≤ 1. Suppose that an attacker sees everything that is released"
        in asked["epsilon"]["answer"]
    )
    assert "replace-one" in asked["unit"]["answer"]
    noise = json.loads((run / "plan.json").read_text())["mechanisms"][0]
    assert f"stddev {noise['stddev']:.6g} (3 ×); the server adds it" in asked["mechanism"]["answer"]
    assert f"sensitivity {noise['sensitivity']:.6g}" in asked["sensitivity"]["answer"]
    assert statement["ledger"]["head"] in asked["earlier"]["answer"]
    assert "one place" in asked["collection"]["answer"]


def test_every_answer_says_something_and_where_it_stands(fedpriv: Command, tmp_path: Path) -> None:
    _, out = dossier(fedpriv, released(fedpriv, tmp_path), tmp_path)
    for each in json.loads((out / "dossier.json").read_text())["questions"]:
        assert each["covered"] is not each["answer"].startswith(NOT_COVERED)
        assert bool(each["source"]) is each["covered"]
        assert len(each["answer"]) > 20
        assert each["answer"].endswith(".")


def test_the_entry_keeps_the_rules_of_the_registry(fedpriv: Command, tmp_path: Path) -> None:
    _, out = dossier(fedpriv, released(fedpriv, tmp_path), tmp_path)
    entry = yaml.safe_load((out / "registry.yaml").read_text())
    assert complaints(entry, RULES) == []
    values = json.loads((out / "dossier.json").read_text())
    assert values["registry"]["entry"] == entry
    assert "deployment.basic.data_curators" in values["registry"]["blanks"]


def test_of_a_release_only_files_of_the_outcome_are_read(
    fedpriv: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With everything else gone, or full of lies, the dossier is the same to the byte."""
    run = released(fedpriv, tmp_path)
    read: set[str] = set()
    whole = reading._read

    def noted(path: Path) -> bytes:
        read.add(path.name)
        return whole(path)

    monkeypatch.setattr(reading, "_read", noted)
    files = made(Evidence.of_run(run), with_page=True)
    assert read <= {*outcome.FILES, outcome.SIGNED}
    alone = tmp_path / "alone"
    alone.mkdir()
    for name in reading.NEEDED:
        shutil.copy(run / name, alone)
    assert made(Evidence.of_run(alone), with_page=True) == files
    (run / "private" / "costs.json").write_text('{"seconds": 31337}')
    (run / "audit.json").write_text("{}")
    assert made(Evidence.of_run(run), with_page=True) == files


def test_a_file_that_is_no_outcome_cannot_be_read() -> None:
    with pytest.raises(RuntimeError, match="no part of an outcome"):
        reading._stated("private/costs.json")


def test_a_result_with_a_field_that_is_not_stated_is_refused(
    fedpriv: Command, tmp_path: Path
) -> None:
    run = released(fedpriv, tmp_path)
    result = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps(result | {"seconds": 3.0}))
    with pytest.raises(RuntimeError, match="seconds must be stated"):
        Evidence.of_run(run)


def test_a_simulation_says_so_first(fedpriv: Command, tmp_path: Path) -> None:
    run = simulated(fedpriv, tmp_path)
    out = tmp_path / "out"
    done = fedpriv("dossier", run, "--new-key", tmp_path / "key.pem", "--out", out)
    assert done.out.startswith("SIMULATED")
    values = json.loads((out / "dossier.json").read_text())
    assert values["status"].startswith("SIMULATED")
    assert values["ledger"] is None
    page = (out / "dossier.html").read_text()
    assert page.index("SIMULATED") < page.index("<h1>")
    assert (out / "registry.yaml").read_text().startswith("# SIMULATED")
    done = fedpriv("verify", out)
    assert done.code == 0
    assert "it is a dossier of a simulation, which guarantees nothing" in done.out


def test_an_audit_is_told_without_its_seconds(fedpriv: Command, tmp_path: Path) -> None:
    run = released(fedpriv, tmp_path)
    audited = tmp_path / "audited"
    assert fedpriv("audit", study(tmp_path), "--runs", 20, "--out", audited).code == 0
    _, out = dossier(fedpriv, run, tmp_path, "--audit", audited)
    values = json.loads((out / "dossier.json").read_text())
    assert values["audit"]["runs"] == 20
    assert "seconds" not in (out / "evidence" / "audit.json").read_text()
    (told,) = (each for each in values["questions"] if each["id"] == "verification")
    assert "An audit of the settings of this run measured at least ε ≥" in told["answer"]
    assert "which proves nothing more" in told["answer"]
    changed = json.loads((audited / "audit.json").read_text())
    for change, words in (
        ({"passed": False}, "IT CONTRADICTS THE CLAIM"),
        ({"config_hash": "0" * 64}, "OTHER settings of the same strategy"),
        ({"fedpriv": "0.0.9"}, "An audit of another version"),
    ):
        (audited / "audit.json").write_text(json.dumps(changed | change))
        values = made(Evidence.of_run(run, audit=audited), with_page=False)["dossier.json"].decode()
        assert words in values


def test_a_description_is_of_statistics(fedpriv: Command, tmp_path: Path) -> None:
    tables = written(tmp_path, people(200))
    book = ("--release", "--new-ledger", "--ledger", tmp_path / "own.ledger")
    file = study(tmp_path, to_toml(tables))
    done = fedpriv("describe", file, *book, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    _, out = dossier(fedpriv, tmp_path / "run", tmp_path)
    entry = yaml.safe_load((out / "registry.yaml").read_text())
    assert complaints(entry, RULES) == []
    assert entry["deployment"]["basic"]["data_product_type"] == "Summary statistics"
    assert fedpriv("verify", out, "--ledger", tmp_path / "own.ledger").code == 0


def test_what_cannot_be_told_of_is_refused_in_a_sentence(fedpriv: Command, tmp_path: Path) -> None:
    run = released(fedpriv, tmp_path)
    key = ("--new-key", tmp_path / "key.pem")
    for arguments, message in (
        ((tmp_path / "nowhere", *key), "holds no result.json: it is not the directory of a fin"),
        ((run,), "give --key FILE, or --new-key FILE"),
        ((run, *key, "--key", tmp_path / "key.pem"), "give --key FILE, or --new-key FILE"),
        ((run, "--key", run / "result.json"), "is not a private key in PEM"),
        ((run, *key, "--out", run / "dossier"), "must not lie in the directory of the run"),
        ((run, *key, "--out", run), "must not lie in the directory of the run"),
        ((run, *key, "--audit", run / "plan.json"), "is not what `fedpriv audit` leaves"),
        ((run, *key, "--out", tmp_path), "exists and is not an empty directory"),
    ):
        done = fedpriv("dossier", *arguments)
        assert done.code == 2
        assert message in done.message
    assert not (run / "dossier").exists()


def test_a_run_without_noise_has_no_dossier(fedpriv: Command, tmp_path: Path) -> None:
    run = simulated(
        fedpriv,
        tmp_path,
        STUDY.replace("gradient-perturbation", "non-private").replace("rounds = 3", ""),
    )
    done = fedpriv("dossier", run, "--new-key", tmp_path / "key.pem")
    assert done.code == 2
    assert "a dossier is about a guarantee, and the run has none" in done.message


def test_an_audit_of_another_strategy_is_refused(fedpriv: Command, tmp_path: Path) -> None:
    run = released(fedpriv, tmp_path)
    said = dict.fromkeys(reading._SAID, "x") | {"strategy": "agd"}
    (tmp_path / "audit.json").write_text(json.dumps(said))
    with pytest.raises(ValueError, match="the audit is of strategy = 'agd'"):
        Evidence.of_run(run, audit=tmp_path)


def test_a_hostile_name_is_text_on_the_page(fedpriv: Command, tmp_path: Path) -> None:
    run = released(fedpriv, tmp_path)
    hostile = "<script>window.hacked = 1</script>"
    for name in ("statement.json", "plan.json"):
        values = json.loads((run / name).read_text())
        values.get("plan", values)["released"] = hostile
        (run / name).write_text(json.dumps(values))
    page = made(Evidence.of_run(run), with_page=True)["dossier.html"].decode()
    assert hostile not in page
    assert "&lt;script&gt;" in page
    assert "are in dossier.json beside it" in page
    assert not re.search(r'(src|href)="(?!#)', page)  # nothing is fetched


@pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason=MISSING)
def test_a_browser_shows_the_page_and_keeps_nobody_out(fedpriv: Command, tmp_path: Path) -> None:
    run = released(fedpriv, tmp_path)
    page = tmp_path / "dossier.html"
    page.write_bytes(made(Evidence.of_run(run), with_page=True)["dossier.html"])
    with browser(tmp_path / "profile") as window:
        window.open(page.as_uri())
        assert window.requested() == [page.as_uri()]
        for scheme, width in (("light", 1280), ("dark", 380)):
            window.see(scheme=scheme, width=width)
            assert window.barriers() == []
            wide = "return document.documentElement.scrollWidth - window.innerWidth"
            assert window.run(wide) <= 0
        assert window.log("browser") == []
