"""Files beside true signatures that say one thing to one reader, and another thing to another."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from fedpriv._json import parse_json
from fedpriv.inference.coefficients import Coefficient, CoefficientTable
from fedpriv.privacy.statement import to_registry_yaml, to_text
from fedpriv.privacy.statement.signed import NotCanonical
from fedpriv.simulations.deploy.run.jobs.statement_file import files_beside, read_statement
from fedpriv.simulations.dossier.bundle import MANIFEST
from fedpriv.simulations.dossier.verifying import verify_bundle
from fedpriv.simulations.run.statement.entry import is_filled_in, read_entry
from fedpriv.simulations.run.statement.wording import Wording
from tests.federation.deployed.errands import verified
from tests.federation.deployed.statement_scenes import Scene
from tests.simulations.dossier.scenes import deployed
from tests.simulations.dossier.test_verify_dossier import bundled

if TYPE_CHECKING:
    from pathlib import Path

SCENE = Scene.make()
BLANK = "TO BE FILLED IN"
LOSS = "deployment:\n"
OTHER_LOSS = """deployment:
  privacy_loss:
    privacy_unit: Person
    privacy_parameters:
      epsilon: 0.001
"""
IN_A_BLANK = f"""intended_use: research
  privacy_loss:
    privacy_parameters:
      epsilon: 0.001
  basic:
    intended_use: {BLANK}"""


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("statement.json", '"epsilon": ', '"epsilon": 0.001, "epsilon": '),
        ("plan.json", '"epsilon": ', '"epsilon": 0.001, "epsilon": '),
        ("plan.json", '"epsilon": ', '"epsilon": 1'),
        ("statement.json", '"guarantee": ', '"guarantee": {"epsilon": 0.001}, "guarantee": '),
        ("statement.yaml", "      epsilon: ", "      epsilon: 0.001\n      epsilon: "),
        ("statement.yaml", LOSS, OTHER_LOSS),
        ("statement.yaml", f"intended_use: {BLANK}", IN_A_BLANK),
        ("statement.yaml", LOSS, f"# epsilon = 0.001 for a person\n{LOSS}"),
        ("statement.yaml", LOSS, f"epsilon: 0.001\n{LOSS}"),
        ("statement.yaml", LOSS, f"<<: {{epsilon: 0.001}}\n{LOSS}"),
        ("statement.yaml", f"{BLANK}\n    data", "X\n    # epsilon = 0.001\n    data"),
        ("statement.yaml", "tier: 3", "tier: 3 # epsilon = 0.001"),
    ],
    ids=lambda value: "".join(value.split())[-24:],
)
def test_what_one_reader_sees_and_another_does_not_is_found(
    tmp_path: Path, name: str, old: str, new: str
) -> None:
    """All of them verified, in the directory and in a dossier: the last of two keys was looked at.

    A reader that takes the first, or a person, read an epsilon of a thousandth.
    """
    run = deployed(SCENE, tmp_path / "run")
    assert files_beside(run, read_statement(run)).passed is True
    text = (run / name).read_text()
    assert old in text
    (run / name).write_text(text.replace(old, new, 1))
    assert files_beside(run, read_statement(run)).passed is False
    try:
        out = bundled(run, tmp_path / "out")
    except ValueError:
        return
    assert not verify_bundle(out / MANIFEST, roster=SCENE.pinned).verdict.sound


@pytest.mark.parametrize("name", ["statement.txt", "statement.yaml"])
def test_words_of_another_version_are_no_way_around(tmp_path: Path, name: str) -> None:
    """A server names its version: text and entry were passed over then, and the rest was well."""
    run = deployed(SCENE, tmp_path / "run", version="0.9.0")
    assert files_beside(run, read_statement(run)).passed is True  # it has the same words
    text = (run / name).read_text()
    (run / name).write_text(text.replace("ecord", "erson", 1))
    found = files_beside(run, read_statement(run))
    assert found.passed is False
    assert f"{name} beside it: not what was signed. fedpriv 0.9.0 wrote it" in found.words
    assert "verify it with that one" in found.words
    assert verified(run)[0] == 1


def test_coefficients_that_nobody_has_signed_are_said_to_be_unsigned(tmp_path: Path) -> None:
    """A server put a table of its own into the text, and all of it was "as they were signed"."""
    run = deployed(SCENE, tmp_path / "run")
    table = CoefficientTable(rows=(Coefficient(name="dose", estimate=7.0, low=6.8, high=7.2),))
    result = json.loads((run / "result.json").read_text()) | {"coefficients": table.to_dict()}
    (run / "result.json").write_text(json.dumps(result))
    values = json.loads((run / "statement.json").read_text())
    (run / "statement.txt").write_text(to_text(Wording.of(values, result=result).statement))
    found = files_beside(run, read_statement(run))
    assert found.passed is True
    assert "are those of result.json, which nobody has signed." in found.words


def test_what_was_not_looked_at_is_named(tmp_path: Path) -> None:
    """A page that a server left beside true signatures can say anything."""
    run = deployed(SCENE, tmp_path / "run")
    (run / "report.html").write_text("epsilon = 0.001")
    found = files_beside(run, read_statement(run))
    assert found.passed is True
    assert found.words.endswith("as they were signed. Not looked at: report.html.")


@pytest.mark.parametrize("value", ["0", "0.0", "null", '"false"'])
def test_false_is_not_zero(tmp_path: Path, value: str) -> None:
    """To Python they are equal, and the dossier was of what the parties had not signed."""
    run = deployed(SCENE, tmp_path / "run")
    text = (run / "statement.json").read_text()
    changed = text.replace('"simulated": false', f'"simulated": {value}')
    assert changed != text
    (run / "statement.json").write_text(changed)
    assert files_beside(run, read_statement(run)).passed is False
    with pytest.raises(ValueError, match="of another statement"):
        bundled(run, tmp_path / "out")


@pytest.mark.parametrize("name", ["statement.json", "model.npz", "statement.txt", "result.json"])
def test_what_is_no_file_is_not_waited_for(tmp_path: Path, name: str) -> None:
    """A pipe, out of an archive that somebody sent, held `fedpriv verify` for ever."""
    run = deployed(SCENE, tmp_path / "run")
    signed = read_statement(run)
    (run / name).unlink()
    os.mkfifo(run / name)
    assert files_beside(run, signed).words == f"{name} beside it: no file."
    (run / "statement.signed.json").unlink()
    os.mkfifo(run / "statement.signed.json")
    with pytest.raises(NotCanonical, match="is no file"):
        read_statement(run)


def test_json_that_is_nested_too_deeply_is_another_statement(tmp_path: Path) -> None:
    run = deployed(SCENE, tmp_path / "run")
    (run / "statement.json").write_text("[" * 100_000)
    assert files_beside(run, read_statement(run)).passed is False


@pytest.mark.parametrize(
    "text", ['{"a": 1, "a": 1}', '{"b": [{"a": 1, "a": 2}]}', "NaN", "[Infinity]", "-Infinity"]
)
def test_json_has_each_key_once_and_numbers_that_are_some(text: str) -> None:
    with pytest.raises(ValueError, match=r"twice|no number"):
        parse_json(text)


@pytest.mark.parametrize("filling", ["the clinics", "'of: us'", '"a\n\n      b"', "a#b"])
def test_blanks_take_what_a_person_writes(filling: str) -> None:
    own = to_registry_yaml(SCENE.statement())
    text = own.replace(BLANK, filling)
    assert is_filled_in(text, own=own)
    assert is_filled_in(text.replace("\n", "\r\n"), own=own)
    assert is_filled_in(text.replace(f"- {filling}", f"- {filling}\n    - others", 1), own=own)
    assert set(read_entry(text.encode())) == {"url_slug", "status", "tier", "deployment"}
    for other in (text[1:], text[:-1], f"{text}more: 1\n", text.replace("Record", "Person"), ""):
        assert not is_filled_in(other, own=own)
