"""The list of mutants fits the source, its page is current, and a few of them are killed.

All of them are for `make mutants`.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from tests.mutants.mutant import ROOT, Mutant, read, stale
from tests.mutants.page import PAGE, page
from tests.mutants.running import Job, Verdict

MUTANTS = read()
TEST = "tests/privacy/test_unit.py::test_it"
MUTANT = Mutant(
    area="units",
    file="fedpriv/privacy/unit.py",
    old="class Unit(StrEnum):",
    new="class Unit(str):",
    breaks="nothing",
    killed_by=("privacy/test_unit.py::test_it",),
)


def test_every_text_stands_once_in_its_file_and_every_test_exists() -> None:
    assert stale(MUTANTS) == []
    assert len(MUTANTS) >= 60
    assert len({(each.file, each.old, each.new) for each in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"old": "no such text"}, "occurs 0 times"),
        ({"old": "def "}, "Give more of the lines"),
        ({"file": "no_such_file.py"}, "No such file"),
        ({"killed_by": ("privacy/test_unit.py::test_that_is_none",)}, "there is no test"),
        ({"killed_by": ("privacy/test_none.py",)}, "there is no test"),
    ],
)
def test_a_list_that_rots_is_noticed(change: dict[str, str], words: str) -> None:
    (good,) = [each for each in MUTANTS if "person_steps" in each.old or each.sample][:1]
    assert words in stale((replace(good, **change),))[0]  # type: ignore[arg-type]


def test_a_line_that_changes_nothing_or_names_no_test_is_refused() -> None:
    with pytest.raises(ValueError, match="new must differ"):
        replace(MUTANT, new=MUTANT.old)
    with pytest.raises(ValueError, match="killed_by must name a test"):
        replace(MUTANT, killed_by=())


def test_the_page_is_that_of_the_list() -> None:
    assert PAGE.read_text() == page(MUTANTS), "python -m tests.mutants --page"


@pytest.mark.parametrize(
    ("status", "said", "neutral", "verdict"),
    [
        (1, f"FAILED {TEST}[1] - assert", "", Verdict.KILLED),
        (1, f"FAILED {TEST} - assert", "", Verdict.KILLED),
        (1, f"FAILED {TEST}_too - assert", "", Verdict.SURVIVED),
        (1, f"ERROR {TEST} - at setup", "", Verdict.SURVIVED),
        (0, "1 passed", "", Verdict.SURVIVED),
        (2, f"ERROR {TEST}: a syntax error", "", Verdict.ERROR),
        (5, "no tests ran", "", Verdict.ERROR),
        (-1, "", "", Verdict.ERROR),
        (0, "1 passed", "it is never read", Verdict.NEUTRAL),
        (1, f"FAILED {TEST}", "it is never read", Verdict.NOT_NEUTRAL),
    ],
)
def test_only_a_named_test_that_fails_kills(
    status: int, said: str, neutral: str, verdict: Verdict
) -> None:
    mutant = replace(MUTANT, neutral=neutral)
    assert Job(tests=mutant.tests, mutant=mutant, status=status, said=said).verdict is verdict


def test_all_named_tests_must_fail() -> None:
    tests = (TEST, "tests/privacy/test_unit.py::test_other")
    job = Job(tests=tests, mutant=MUTANT, status=1, said=f"FAILED {TEST} - assert")
    assert job.verdict is Verdict.SURVIVED
    both = replace(job, said=f"FAILED {TEST}\nFAILED {tests[1]}")
    assert both.verdict is Verdict.KILLED


def test_a_sample_is_killed_and_the_tree_stays_as_it_is() -> None:
    sample = [each for each in MUTANTS if each.sample]
    before = [(ROOT / each.file).read_bytes() for each in sample]
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutants", "--sample"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(sample)} mutants" in done.stdout
    assert f"{len(sample)} killed" in done.stdout
    assert [(ROOT / each.file).read_bytes() for each in sample] == before
