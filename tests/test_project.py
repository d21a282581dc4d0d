"""The repository keeps its own promises: the commands of its pages print what these say."""

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import fedpriv

ROOT = Path(__file__).parents[1]
LONGEST = 350  # lines of a Python file
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def console_blocks() -> list[tuple[str, str, str]]:
    """Every `$ fedpriv …` command of the documents, with the output that they show for it."""
    found = []
    for page in PAGES:
        for block in re.findall(r"```console\n(.*?)```", page.read_text(), re.DOTALL):
            for command, output in re.findall(
                r"^\$ (fedpriv .*(?:\\\n.*)*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE
            ):
                found.append((page.name, command.replace("\\\n", " "), output))
    return found


@pytest.mark.parametrize(
    ("page", "command", "expected"), console_blocks(), ids=lambda value: str(value)[:60]
)
def test_a_documented_command_prints_what_the_document_says(
    page: str, command: str, expected: str, tmp_path: Path
) -> None:
    arguments = shlex.split(command)[1:]
    done = subprocess.run(
        [sys.executable, "-c", "from fedpriv.simulations.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=300,
    )
    assert done.stderr == ""
    assert done.stdout.split() == expected.split(), f"{page}: {command}"


def test_there_are_commands_with_their_output() -> None:
    assert {page for page, _, _ in console_blocks()} >= {"accounting.md", "schedules.md"}


def test_the_version_is_written_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == fedpriv.__version__


def test_every_dependency_has_a_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [
        re.split(r"[<>=\[ ]", requirement)[0]
        for group in [project["dependencies"], *project["optional-dependencies"].values()]
        for requirement in group
    ]
    reasons = (ROOT / "CONTRIBUTING.md").read_text()
    missing = [name for name in named if name != "fedpriv" and f"`{name}`" not in reasons]
    assert not missing


def test_no_file_is_too_long_to_read() -> None:
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"]
    done = subprocess.run(listed, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        pytest.skip("which files are the repository's, git says, and this is no clone")
    files = [ROOT / name for name in done.stdout.splitlines()]
    lengths = {file: len(file.read_text().splitlines()) for file in files if file.exists()}
    assert len(lengths) > 500, "the files were not found"
    too_long = [
        f"{file.relative_to(ROOT)} has {length} lines; more than {LONGEST} are two concerns: split "
        "it, so that each name says what is in it"
        for file, length in lengths.items()
        if length > LONGEST
    ]
    assert not too_long, "\n".join(too_long)


def test_continuous_integration_runs_the_command_of_the_readme() -> None:
    assert (ROOT / ".ci" / "run").read_text().rstrip().endswith("\nmake test")
    assert "make test" in (ROOT / "README.md").read_text()
