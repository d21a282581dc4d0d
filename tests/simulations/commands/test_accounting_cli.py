"""`fedpriv account` and `fedpriv calibrate`, as a person and as a script would use them."""

import io
import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from fedpriv.simulations.cli import main


def fedpriv(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in this process, without the second that Python takes to start."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["fedpriv", *arguments]),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        main()
    code = int(ended.value.code or 0)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def fedpriv_json(*arguments: str) -> Any:
    done = fedpriv(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_account_reports_the_reference_value_with_its_assumptions() -> None:
    printed = fedpriv_json(
        "account", "--noise-multiplier", "10", "--rounds", "100", "--delta", "1e-5",
        "--adjacency", "add-remove",
    )  # fmt: skip
    assert printed["epsilon"] == pytest.approx(4.377178096, rel=1e-9)
    assert printed["accountant"] == "gdp"
    assert printed["adjacency"] == "add-remove"
    assert printed["delta"] == 1e-5
    assert printed["noise_multiplier"] == 10


def test_replacing_a_record_costs_what_half_the_noise_would() -> None:
    common = ["account", "--rounds", "50", "--delta", "1e-6", "--noise-multiplier"]
    replaced = fedpriv_json(*common, "40", "--adjacency", "replace-one")
    removed = fedpriv_json(*common, "20", "--adjacency", "add-remove")
    assert replaced["epsilon"] == pytest.approx(removed["epsilon"], rel=1e-12)


def test_all_sets_every_accountant_side_by_side() -> None:
    arguments = (
        "account", "--noise-multiplier", "4", "--sampling-rate", "0.01", "--rounds", "1000",
        "--delta", "1e-5", "--adjacency", "add-remove", "--all",
    )  # fmt: skip
    printed = fedpriv_json(*arguments)
    assert printed["accountants"]["tcdp"] == pytest.approx(1.408415, rel=1e-6)
    assert printed["accountants"]["ctcdp"] >= printed["accountants"]["tcdp"]
    assert printed["accountants"]["gdp"] is None
    assert "only full-batch Gaussian noise" in printed["reasons"]["gdp"]
    assert printed["epsilon"] == min(e for e in printed["accountants"].values() if e is not None)
    text = fedpriv(*arguments).stdout
    (marked,) = [line for line in text.splitlines() if "tightest" in line]
    assert "pld" in marked


def test_a_schedule_is_read_from_json(tmp_path: Path) -> None:
    path = tmp_path / "schedule.json"
    path.write_text(json.dumps([5, 4, 3, 2, 1]))
    printed = fedpriv_json(
        "account", "--schedule", str(path), "--delta", "1e-6", "--adjacency", "add-remove"
    )
    assert printed["epsilon"] == pytest.approx(6.078120150, rel=1e-9)
    assert printed["rounds"] == 5


def test_replace_one_is_the_default_of_every_command() -> None:
    noise = ("account", "--noise-multiplier", "10", "--rounds", "3", "--delta", "1e-6")
    assert fedpriv_json(*noise) == fedpriv_json(*noise, "--adjacency", "replace-one")
    budget = ("calibrate", "--epsilon", "2", "--delta", "1e-6", "--rounds", "3")
    assert fedpriv_json(*budget) == fedpriv_json(*budget, "--adjacency", "replace-one")


def test_calibrate_and_account_are_inverse() -> None:
    printed = fedpriv_json("calibrate", "--epsilon", "2", "--delta", "1e-6", "--rounds", "30")
    back = fedpriv_json(
        "account", "--noise-multiplier", repr(printed["noise_multiplier"]), "--rounds", "30",
        "--delta", "1e-6",
    )  # fmt: skip
    assert 2 * (1 - 1e-9) <= back["epsilon"] <= 2


def test_printed_noise_is_rounded_up_and_keeps_the_budget() -> None:
    text = fedpriv("calibrate", "--epsilon", "1", "--delta", "1e-6", "--rounds", "7").stdout
    printed = text.split("noise_multiplier = ")[1].split()[0]
    back = fedpriv_json(
        "account", "--noise-multiplier", printed, "--rounds", "7", "--delta", "1e-6"
    )
    assert back["epsilon"] <= 1


def test_laplace_noise_for_pure_privacy() -> None:
    printed = fedpriv_json(
        "calibrate", "--epsilon", "0.5", "--delta", "0", "--rounds", "10", "--mechanism", "laplace"
    )
    assert printed["noise_multiplier"] == pytest.approx(20, rel=1e-9)
    assert printed["accountant"] == "basic"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("calibrate --epsilon 0 --delta 1e-6 --rounds 9", "epsilon must be positive"),
        ("calibrate --epsilon nan --delta 1e-6 --rounds 9", "epsilon must be positive"),
        ("calibrate --epsilon 1 --delta 1 --rounds 9", "delta must lie in [0, 1), got 1.0"),
        ("calibrate --epsilon 1 --delta 0 --rounds 9", "Use Laplace noise"),
        ("calibrate --epsilon 1 --delta 1e-6 --rounds 0", "rounds must be an integer of at least"),
        ("account --noise-multiplier 0 --rounds 9 --delta 1e-6", "noise_multiplier must be"),
        ("account --noise-multiplier 1 --delta 1e-6", "rounds must be given"),
        ("account --rounds 9 --delta 1e-6", "give either --noise-multiplier"),
        ("account --noise-multiplier 1 --rounds 9 --delta 1e-6 --sampling-rate 2", "sampling_rate"),
        (
            (
                "account --noise-multiplier 1 --rounds 9 --delta 1e-6 --sampling-rate 0.1 "
                "--adjacency replace-one"
            ),
            "adjacency must be 'add-remove' with Poisson sampling",
        ),
        ("account --noise-multiplier 1 --rounds 9 --delta 1e-6 --accountant rpd", "'rdp'?"),
        ("account --schedule missing.json --delta 1e-6", "cannot be read"),
        ("account --noise-multiplier 1 --rounds 9 --delta 1e-6 --adjacency both", "adjacency"),
        ("acount", "No such command"),
    ],
)
def test_bad_input_is_one_message_and_exit_status_2(arguments: str, message: str) -> None:
    done = fedpriv(*arguments.split())
    assert done.returncode == 2
    assert message in " ".join(done.stderr.replace("│", " ").split())
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("content", ["{", '{"a": 1}', "[]", "[1, 0]", '["2"]', "[true]", "[NaN]"])
def test_a_bad_schedule_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "schedule.json"
    path.write_text(content)
    done = fedpriv("account", "--schedule", str(path), "--delta", "1e-6")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_no_guarantee_is_exit_status_1() -> None:
    done = fedpriv("account", "--noise-multiplier", "1", "--rounds", "1", "--delta", "0")
    assert done.returncode == 1
    assert "no guarantee" in done.stdout


def test_help_teaches_with_an_example_and_imports_nothing_heavy() -> None:
    script = (
        "import sys\n"
        "from fedpriv.simulations.cli import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'ray', 'scipy', 'dp_accounting', 'flwr'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, timeout=60)
    for command in ("account", "calibrate"):
        assert "Example" in fedpriv(command, "--help").stdout


def test_a_tuning_is_priced_and_calibrated() -> None:
    trials = ("--delta", "1e-6", "--rounds", "101", "--expected-trials", "10")
    noise = fedpriv_json("calibrate", "--epsilon", "1", *trials)
    assert (noise["accountant"], noise["expected_trials"], noise["eta"]) == ("basic", 10, 0)
    # By mpmath: 2·√101/μ, with the μ whose price is ε = 1.
    assert noise["noise_multiplier"] == pytest.approx(120.33236228299, rel=1e-9)
    multiplier = ("account", "--noise-multiplier", repr(noise["noise_multiplier"]))
    assert fedpriv_json(*multiplier, *trials)["epsilon"] == noise["epsilon"] <= 1.0
    geometric = fedpriv_json(*multiplier, *trials, "--eta", "1", "--all")
    assert 1.0 < geometric["accountants"]["basic"] < geometric["accountants"]["rdp"]
    assert geometric["rounds"] == 101


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--expected-trials", "9", "--mechanism", "laplace"), "needs Gaussian noise on full"),
        (("--expected-trials", "9", "--sampling-rate", "0.5"), "needs Gaussian noise on full"),
        (("--eta", "1"), "--eta needs --expected-trials, got 1 alone"),
    ],
)
def test_a_law_of_trials_goes_with_what_it_is_a_price_for(
    more: tuple[str, ...], message: str
) -> None:
    spent = ("account", "--noise-multiplier", "30", "--rounds", "9")
    bought = ("calibrate", "--epsilon", "1", "--rounds", "9")
    for command in (spent, bought):
        done = fedpriv(*command, "--delta", "1e-6", "--adjacency", "add-remove", *more)
        assert done.returncode == 2
        assert message in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("10", "--mechanism", "laplace"), "needs Gaussian noise on full batches"),
        (("10", "--accountant", "pld"), "accountant must be one of auto, basic, rdp"),
    ],
)
def test_a_tuning_without_a_price_is_refused(more: tuple[str, ...], message: str) -> None:
    rounds = ("calibrate", "--epsilon", "1", "--delta", "1e-6", "--rounds", "9")
    done = fedpriv(*rounds, "--expected-trials", *more)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
