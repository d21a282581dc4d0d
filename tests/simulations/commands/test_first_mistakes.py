"""What a new user gets wrong first: each mistake is met by a sentence with its remedy."""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fedpriv.simulations.cli import warn
from fedpriv.simulations.compare.intervals import Interval
from fedpriv.simulations.compare.words import points

if TYPE_CHECKING:
    from tests.simulations.conftest import Command

SCHEMA = """
label = "ill"
positive = "yes"
out_of_range = "clamp"

[columns.ill]
kind = "category"
values = ["no", "yes"]

[columns.age]
kind = "number"
min = 20
max = 80
"""
EXPERIMENT = """
[data]
path = "visits.csv"
schema = "visits.toml"
partition = "iid"
parties = 2

[strategy]
name = "gradient-perturbation"
rounds = 3

[privacy]
epsilon = 1.0
delta = 1e-6
"""
VISITS = "age,ill\n" + "".join(f"{15 + i},{'yes' if i % 3 else 'no'}\n" for i in range(60))


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "visits.csv").write_text(VISITS)
    (tmp_path / "semicolons.csv").write_text(VISITS.replace(",", ";"))
    (tmp_path / "visits.toml").write_text(SCHEMA)
    (tmp_path / "no_label.toml").write_text(SCHEMA.replace('label = "ill"\n', ""))
    (tmp_path / "misspelt.toml").write_text(SCHEMA.replace("positive =", "pozitive ="))
    (tmp_path / "commas.csv").write_text(VISITS.replace("16,", '"16,5",'))
    (tmp_path / "headless.csv").write_text(VISITS.partition("\n")[2])
    (tmp_path / "two.toml").write_text(SCHEMA.replace('positive = "yes"\n', ""))
    (tmp_path / "wrong_label.toml").write_text(SCHEMA.replace('label = "ill"', 'label = "il"'))
    (tmp_path / "type.toml").write_text(SCHEMA.replace('kind = "number"', 'type = "number"'))
    (tmp_path / "clip.toml").write_text(SCHEMA.replace('"clamp"', '"clip"'))
    (tmp_path / "case.toml").write_text(SCHEMA.replace('"yes"\nout', '"Yes"\nout'))
    file = tmp_path / "study.toml"
    file.write_text(EXPERIMENT)
    return file


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("strategy.rounds=2.5", "strategy.rounds must be an integer, got 2.5."),
        ("strategy.rounds=1000000000", "strategy.rounds must be at most 1e+06, got 1000000000."),
        ("strategy.learning_rate=1e300", "steps grew without bound. Use a smaller learning rate."),
        ("data.path=.", "is a folder: name the .csv or .parquet file in it."),
        ("data.path=nothing.csv", "csv does not exist."),
        ("data.path=visit.csv", "csv does not exist. Is 'visits.csv' meant?"),
        ("data.schema=vists.toml", "toml does not exist. Is 'visits.toml' meant?"),
        ("data.path=commas.csv", "row 2 does not hold a number. Write digits and a decimal point"),
        ("data.path=headless.csv", "The first line must name the columns, and names none of them."),
        ("data.schema=two.toml", "which of the two labels is the positive one, as in positive = "),
        ("data.schema=wrong_label.toml", "the header lacks column 'il' of the schema (label). Is"),
        ("data.schema=type.toml", "columns.age: kind is missing; it is 'number' or 'category'."),
        ("data.schema=clip.toml", "out_of_range: must be 'reject' or 'clamp', got 'clip'."),
        ("data.partition=natural", "name the column in the schema, as in party = 'clinic', or"),
        ('privacy.epsilon="1.0"', "must be a number or 'inf', got '1.0'. Write 1, without quotes."),
        ("compare.epsilons=0.5", "compare.epsilons must be a list, got 0.5. Write [0.5]."),
        ("data.path=semicolons.csv", 'separated otherwise: set delimiter = ";" in the schema.'),
        ("data.schema=no_label.toml", "no_label.toml: label is missing; it names the column"),
        ("data.schema=misspelt.toml", "unknown key 'pozitive'"),
        ("data.schema=case.toml", "positive must be one of the values in [columns.ill]"),
        ("data.name=chem97", "of your own; got both, with name = 'chem97'."),
        ('data={name="chem79"}', "data.name must be one of chem97,"),
        ("compare.strategies=[pathak]", "must be a list, got '[pathak]'. Texts in a list need"),
    ],
)
def test_a_wrong_setting_is_answered_by_a_sentence(
    fedpriv: Command, study: Path, setting: str, sentence: str
) -> None:
    done = fedpriv("run", study, "--set", setting)
    assert done.code == 2
    # Whatever the width of the terminal, and wherever a line of the message was broken.
    assert "".join(sentence.split()) in "".join(done.message.split())
    assert "Traceback" not in done.err
    assert "Warning" not in done.err


def test_a_run_that_nobody_signed_is_told_from_one_that_cannot_be_read(
    fedpriv: Command, study: Path
) -> None:
    assert fedpriv("run", study, "--out", "done").code == 0
    refused = fedpriv("verify", "done")
    assert refused.code == 2
    assert "no party signed this one" in " ".join(refused.message.split())
    assert "fedpriv dossier done --new-key FILE" in " ".join(refused.message.split())
    Path("officer.pem").write_text("mine")
    again = fedpriv("dossier", "done", "--new-key", "officer.pem", "--out", "dossier")
    assert "'officer.pem' exists. If it is your key, sign with it by --key" in again.message
    assert not Path("dossier").exists()
    unknown = fedpriv("predict", "nowhere", "visits.csv", "--out", "predicted.csv")
    assert "Name the directory of a finished run" in " ".join(unknown.message.split())


def test_how_parties_are_served_is_told_in_percent_and_not_of_one_party(
    fedpriv: Command, study: Path
) -> None:
    told = fedpriv("run", study, "--set", "data.parties=2").out
    assert re.search(r"records: \d+\.\d\d % at the worst, \d+\.\d\d points between", told)
    alone = fedpriv("run", study, "--set", "data.parties=1", "--out", "alone").out
    assert "between worst and best" not in alone
    page = (study.parent / "alone" / "report.html").read_text()
    assert "1 parties" not in page
    assert "of 1 party and" in page


def test_a_class_that_is_no_loss_is_told_what_to_derive_from(fedpriv: Command, study: Path) -> None:
    (study.parent / "mine.py").write_text("class Mine:\n    pass\n")
    study.write_text(EXPERIMENT + '[model]\nname = "linear"\nloss = "mine.py:Mine"\n')
    told = " ".join(fedpriv("run", study).message.split())
    assert "'mine.py:Mine' must be a loss, got Mine: derive the class from MarginLoss" in told


def test_a_missing_table_is_answered_by_what_to_add(fedpriv: Command, study: Path) -> None:
    study.write_text(
        EXPERIMENT.replace("[strategy]\n", "[elsewhere]\n").partition("[elsewhere]")[0]
    )
    assert "strategy is missing. Add [strategy] with a name" in fedpriv("run", study).message
    study.write_text(EXPERIMENT.replace('name = "gradient-perturbation"\n', ""))
    assert "strategy.name is missing. Add name to [strategy]." in fedpriv("run", study).message


def test_a_misspelt_command_is_recognised_once(fedpriv: Command) -> None:
    assert fedpriv("runn").err.count("Did you mean 'run'?") == 1


def test_what_is_no_experiment_is_told_from_one(fedpriv: Command, study: Path) -> None:
    table, schema = fedpriv("run", "visits.csv").message, fedpriv("run", "visits.toml").message
    assert "experiment 'visits.csv' is a table. An experiment is a TOML file that names it" in table
    assert "is a schema. An experiment is a file that names it, beside the table" in schema
    assert study.exists()


def test_a_misspelt_experiment_is_recognised(fedpriv: Command) -> None:
    assert "Did you mean 'quickstart'?" in fedpriv("run", "quickstrat").message


def test_what_a_schema_did_to_a_table_is_told_in_a_simulation_alone(
    fedpriv: Command, study: Path, tmp_path: Path
) -> None:
    told = "values were moved to the bounds: 5 in 'age'"
    simulated = fedpriv("run", study, "--out", tmp_path / "simulated").out
    assert told in simulated
    assert "warning" not in simulated
    released, out = tmp_path / "released", "data.partition=hashed"
    done = fedpriv(
        "run", study, "--set", out, "--set", "data.parties=1", "--set", "data.test_fraction=0",
        "--release", "--ledger", tmp_path / "ledger", "--new-ledger", "--out", released,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "moved to the bounds" not in done.out + done.err
    assert "1 party, 60 records" in done.out
    loading = json.loads((released / "private" / "loading.json").read_text())
    assert (loading["rows_read"], loading["clamped"]) == (60, {"age": 5})


def test_a_column_of_which_a_schema_knows_next_to_nothing_is_warned_of(
    fedpriv: Command, study: Path
) -> None:
    rows = [f"{20 + i},{'f' if i % 2 else 'm'},{i},{'yes' if i % 3 else 'no'}" for i in range(60)]
    (study.parent / "visits.csv").write_text("\n".join(["age,sex,row,ill", *rows]))
    sexes = '[columns.sex]\nkind = "category"\nvalues = ["female", "male"]\n'
    (study.parent / "visits.toml").write_text(f"{SCHEMA}\n{sexes}")
    told = fedpriv("run", study).out
    assert "values that the schema does not list became zeros: 60 in 'sex'" in told
    assert "columns that the schema does not name: 'row'" in told
    assert "warning: in column 'sex' all 60 values are not what the schema says" in told


def test_rows_that_were_dropped_are_told(fedpriv: Command, study: Path) -> None:
    (study.parent / "visits.csv").write_text(VISITS.replace("\n16,", "\n,"))
    (study.parent / "visits.toml").write_text('missing = "drop"\n' + SCHEMA)
    assert "1 of 60 rows were dropped: values are missing" in fedpriv("run", study).out


def test_a_large_delta_is_warned_of_on_the_screen(fedpriv: Command, study: Path) -> None:
    assert "warning" not in fedpriv("run", study).out
    warned = fedpriv("run", study, "--set", "privacy.delta=0.01").out
    assert "warning: delta = 0.01 is not small against 1/N" in warned


def test_a_large_epsilon_is_warned_of_on_the_screen(fedpriv: Command, study: Path) -> None:
    assert "promises little" not in fedpriv("run", study, "--set", "privacy.epsilon=10").out
    warned = fedpriv("run", study, "--set", "privacy.epsilon=1e9").out
    assert "warning: epsilon = 1e+09 promises little" in warned


def test_a_full_disk_is_no_trace(
    fedpriv: Command, study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "model.npz")

    monkeypatch.setattr("os.fsync", full)
    done = fedpriv("run", study, "--out", "somewhere")
    assert done.code == 2
    assert "'model.npz': No space left on device." in done.message
    assert "Free some space, or write to another disk" in " ".join(done.message.split())


def test_a_guarantee_for_records_of_people_who_have_several_is_warned_of(
    fedpriv: Command, study: Path
) -> None:
    rows = [f"{20 + i},{i // 3},{'yes' if i % 3 else 'no'}" for i in range(60)]
    (study.parent / "visits.csv").write_text("\n".join(["age,patient,ill", *rows]))
    warning = "the column 'patient' of the table says whose a record is"
    assert warning not in fedpriv("run", study).out
    (study.parent / "visits.toml").write_text('person = "patient"\n' + SCHEMA)
    done = fedpriv("run", study, "--out", study.parent / "warned")
    assert f"warning: {warning}" in done.out
    statement = (study.parent / "warned" / "statement.txt").read_text()
    assert warning in " ".join(statement.split())
    assert "as declared" not in statement  # nobody declared how many records a person has
    assert f"warning: {warning}" in fedpriv("describe", study).out
    persons = ("--set", "privacy.unit=person", "--set", "persons.records=3")
    assert warning not in fedpriv("run", study, *persons).out
    twin = fedpriv("run", study, "--set", "privacy.epsilon=inf").out
    assert warning not in twin


@pytest.mark.parametrize(
    ("out", "reason"), [("visits.csv/inner", "Not a directory"), ("x" * 300, "File name too long")]
)
def test_a_place_that_cannot_be_written_to_is_no_trace(
    fedpriv: Command, study: Path, out: str, reason: str
) -> None:
    done = fedpriv("run", study, "--out", out)
    assert done.code == 2
    assert reason in done.message
    assert "Traceback" not in done.err


def test_a_warning_is_a_sentence_without_a_place_in_the_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    warn("Does [it] learn?", UserWarning, "base.py", 225)
    assert capsys.readouterr().err == "Warning: Does [it] learn?\n"


def test_nothing_is_not_less_than_nothing() -> None:
    assert points(Interval(mean=-1e-9, half_width=0.0)) == "0.00 points"
    assert points(Interval(mean=-0.0125, half_width=0.0)) == "-1.25 points"
