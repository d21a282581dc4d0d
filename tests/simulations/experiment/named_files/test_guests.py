"""Code of a user's own: loaded by its hash, named in every file, refused once it was changed."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fedpriv.simulations.compare.cells import Cell, check_cell
from fedpriv.simulations.experiment.catalogue import checked, strategy_info
from fedpriv.simulations.experiment.file import parse_experiment, read_experiment
from fedpriv.simulations.experiment.named_files import guests
from fedpriv.simulations.run.prepare import build_strategy, prepare
from fedpriv.simulations.run.session import reopen
from tests.simulations.experiment.named_files.guests import EXPERIMENT, STRATEGY, digest_of

if TYPE_CHECKING:
    from tests.simulations.conftest import Command


def test_a_run_states_the_hash_in_every_file_that_says_what_was_run(
    fedpriv: Command, file: Path, tmp_path: Path
) -> None:
    out, digest = tmp_path / "out", digest_of(tmp_path / "mine.py")
    fedpriv("run", file, "--out", out, "--json").json()
    for name in ("config.toml", "plan.json", "statement.txt", "statement.json", "result.json"):
        assert digest in (out / name).read_text(), name
    signature = f"mine.py:SignDescent (sha256 {digest[:8]}…)"
    for name in ("plan.json", "result.json"):
        assert json.loads((out / name).read_text())["strategy"] == signature
    text = " ".join((out / "statement.txt").read_text().split())
    assert f"strategy: {signature}" in text
    assert "code that is not fedpriv's: strategy mine.py:SignDescent" in text
    assert "gradient-perturbation" not in text


def test_the_hash_of_the_code_is_part_of_the_config_hash_and_its_place_is_not(
    file: Path, tmp_path: Path
) -> None:
    before = read_experiment(file).config_hash
    (elsewhere := tmp_path / "elsewhere").mkdir()
    for name in ("mine.py", "study.toml"):
        (elsewhere / name).write_bytes((tmp_path / name).read_bytes())
    assert read_experiment(elsewhere / "study.toml").config_hash == before
    (tmp_path / "mine.py").write_text(STRATEGY + "\n# a word more\n")
    assert read_experiment(file).config_hash != before


def test_a_resumed_run_whose_guest_was_changed_is_refused(
    fedpriv: Command, file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    fedpriv("run", file, "--out", out, "--json").json()
    reopen(out)
    (tmp_path / "mine.py").write_text(STRATEGY + "\n# a word more\n")
    with pytest.raises(ValueError, match=r"'mine.py:SignDescent' was changed since"):
        reopen(out)
    refused = fedpriv("run", "--resume", out)
    assert refused.code == 2
    assert "was changed since" in refused.message


def test_a_worker_checks_the_hash_again(file: Path, tmp_path: Path) -> None:
    cell = Cell(experiment=read_experiment(file))
    check_cell(cell)
    (tmp_path / "mine.py").write_text(STRATEGY + "\n# a word more\n")
    with pytest.raises(ValueError, match="was changed since the experiment was read"):
        check_cell(cell)


def test_what_is_hashed_is_what_is_executed(file: Path, tmp_path: Path) -> None:
    """A file is read once: what stands there after that does not run."""
    experiment = read_experiment(file)
    reads: list[Path] = []
    original = Path.read_bytes

    def counting(path: Path) -> bytes:
        if path.name == "mine.py":
            reads.append(path)
        return original(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "read_bytes", counting)
        guests.load("strategy", experiment.strategy.name, experiment.guests)
    assert len(reads) == 1


def test_a_comparison_and_its_report_name_the_guest(
    fedpriv: Command, file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "compared"
    done = fedpriv("compare", file, "--out", out, "--workers", 1, "--set", "compare.seeds=1")
    assert done.code == 0, done.err
    report = (out / "report.md").read_text()
    assert "mine.py:SignDescent" in report
    assert digest_of(tmp_path / "mine.py") in report


def test_all_engines_agree_on_a_guest(fedpriv: Command, file: Path, tmp_path: Path) -> None:
    few = ("--set", "data.partition=iid", "--set", "data.parties=4", "--json")
    results = [
        fedpriv("run", file, "--engine", engine, "--out", tmp_path / engine, *few).json()
        for engine in ("vectorized", "local")
    ]
    assert results[0]["config_hash"] == results[1]["config_hash"]
    assert results[0]["loss"] == pytest.approx(results[1]["loss"], abs=1e-3)


def test_the_list_shows_the_strategies_of_a_file(fedpriv: Command, file: Path) -> None:
    (entry,) = fedpriv("list", "strategies", file.with_name("mine.py"), "--json").json()
    assert entry["name"].endswith("mine.py:SignDescent")
    assert entry["options"]["learning_rate"] == 0.05
    assert fedpriv("list", "data", file.with_name("mine.py")).code == 2
    named = fedpriv("list", "strategies", "mine")
    assert named.code == 2
    assert "or a file of your own that ends in .py" in named.message


@pytest.mark.parametrize(
    ("code", "name", "message"),
    [
        (None, "missing.py:X", r"'missing.py:X': .* cannot be read: No such file"),
        (STRATEGY, "mine.py:Sign", r"defines no 'Sign'. It defines: SignDescent, SignOptions\.$"),
        (STRATEGY, "mine.py:np", r"'mine.py:np' is no strategy: .* must have INFO"),
        (
            STRATEGY.replace("INFO =", "info ="),
            "mine.py:SignDescent",
            r"no strategy: the class, or its file, must have INFO, a StrategyInfo, and has none\.",
        ),
        (
            STRATEGY.replace("_update", "_udpate"),
            "mine.py:SignDescent",
            r"must define _update\(release\), which Nois.*It has '_udpate': is '_update' meant\?$",
        ),
        ("x = 1\ny = 1 / 0\n", "mine.py:x", r"mine.py, line 2 \(y = 1 / 0\): ZeroDivisionError"),
        ("def f(:\n", "mine.py:f", r"mine.py, line 1: invalid syntax"),
        ("import sys\nsys.exit(3)\n", "mine.py:f", r"mine.py, line 2 .*SystemExit"),
        ("import helper\n", "mine.py:f", r"line 1 .*A guest is one file, the one that is hashed"),
        ("import nowhere_at_all\n", "mine.py:f", r"No module named 'nowhere_at_all'$"),
    ],
)
def test_what_is_wrong_with_a_guest_is_said_in_one_sentence(
    code: str | None, name: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "helper.py").write_text("")
    if code is not None:
        (tmp_path / "mine.py").write_text(code)
    reference = guests.anchored(name, tmp_path)
    before = set(sys.modules)
    with pytest.raises(ValueError, match=message):
        strategy_info(reference, {})
    assert not {m for m in set(sys.modules) - before if "guest" in m} or "class" in str(code)


def test_a_file_without_a_name_is_refused_with_the_names_in_it(file: Path) -> None:
    """Without being executed: whoever reads an experiment of somebody else's runs nothing."""
    file.with_name("mine.py").write_text("class Mine: ...\n1 / 0\n")
    named = file.read_text().replace("mine.py:SignDescent", "mine.py")
    file.write_text(named)
    with pytest.raises(ValueError, match=r"strategy.name .* as in mine.py:Mine; .* defines Mine\."):
        read_experiment(file)
    with pytest.raises(ValueError, match=r"strategy.name must be one of"):
        checked(parse_experiment({"data": {"name": "synthetic"}, "strategy": {"name": "mine.py"}}))


def test_a_loss_without_a_method_is_told_which(file: Path) -> None:
    file.with_name("losses.py").write_text(
        "from fedpriv.learning.losses import MarginLoss\n"
        "class Mine(MarginLoss):\n"
        "    lipschitz = smoothness = domain_radius = 1.0\n"
        "    def value(self, score, y): return score\n"
        "    def slop(self, score, y): return score\n"
    )
    chosen = ["model.name=linear", f"model.loss={file.with_name('losses.py')}:Mine"]
    with pytest.raises(
        ValueError,
        match=r"losses.py:Mine' must define curvature\(score, y\), slope\(score, y\), which "
        r"MarginLoss leaves to it\. It has 'slop': is 'slope' meant\?",
    ):
        prepare(read_experiment(file, chosen))


def test_info_may_stand_in_the_file_and_build_in_the_class(file: Path) -> None:
    head, info, rest = STRATEGY.partition("    INFO = StrategyInfo(")
    fields, end, method = rest.partition("    )\n")
    moved = head + method + "\n" + (info + fields + end).replace("\n    ", "\n").lstrip()
    file.with_name("mine.py").write_text(moved)
    assert build_strategy(prepare(read_experiment(file)), run="r").releases == 4


def test_an_error_while_a_guest_is_built_names_its_line(file: Path, tmp_path: Path) -> None:
    broken = (
        STRATEGY + "    @classmethod\n    def build(cls, setup, options):\n        return {}[0]\n"
    )
    (tmp_path / "mine.py").write_text(broken)
    prepared = prepare(read_experiment(file))
    with pytest.raises(
        ValueError, match=r"mine.py:SignDescent, line \d+ \(return \{\}\[0\]\): Key"
    ):
        build_strategy(prepared, run="r")


def test_an_unknown_name_is_refused_with_the_nearest_one(file: Path) -> None:
    with pytest.raises(ValueError, match="Did you mean 'gradient-perturbation'"):
        strategy_info("gradient-pertubation", {})
    values = {**read_experiment(file).to_dict(), "model": {"name": "logistik"}}
    with pytest.raises(ValueError, match=r"model.name must be .*'path/to/file.py:Name'.*logistic"):
        parse_experiment(values)


def test_a_deployment_refuses_a_guest_before_it_looks_for_it(tmp_path: Path) -> None:
    values: dict[str, Any] = {
        "data": {"schema": "s.toml"},
        "strategy": {"name": str(tmp_path / "nowhere.py:X")},
        "run": {"engine": "deployment"},
    }
    with pytest.raises(ValueError, match="a deployment runs no code that an experiment names"):
        parse_experiment(values)


@pytest.mark.parametrize("engine", ["deployment", "vectorized"])
@pytest.mark.parametrize("key", ["strategy", "model", "loss"])
def test_a_deployed_party_executes_nothing_that_a_server_names(
    key: str, engine: str, tmp_path: Path
) -> None:
    """Whatever engine the server writes, and even if such a file lies on the party's disk."""
    from fedpriv.simulations.deploy.run.client import _experiment

    mark = tmp_path / "executed"
    code = tmp_path / "evil.py"
    code.write_text(f"from pathlib import Path\nPath({str(mark)!r}).touch()\nX = 1\n")
    name = f"{code}:X"
    table, entry = {"strategy": ("strategy", "name"), "model": ("model", "name")}.get(
        key, ("model", "loss")
    )
    names = {("strategy", "name"): "gradient-perturbation", ("model", "name"): "linear"}
    names[(table, entry)] = name
    lines = [f"[{section}]\n" for section in ("data", "model", "strategy", "run")]
    lines[0] += 'name = "synthetic"\n'
    lines[3] += f'engine = "{engine}"\n'
    for (section, option), value in names.items():
        lines[{"model": 1, "strategy": 2}[section]] += f'{option} = "{value}"\n'
    with pytest.raises(ValueError, match=re.escape("a deployment runs no code")):
        _experiment("".join(lines))
    assert not mark.exists()


def test_an_override_of_a_comparison_names_a_file_beside_the_experiment(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nets.py").write_text("from torch.nn import Linear\nNet = Linear\n")
    text = EXPERIMENT.replace(
        '"gradient-perturbation"]',
        '{ name = "gradient-perturbation", override = { "model.name" = "nets.py:Net" } }]',
    )
    file.write_text(text)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    compared = read_experiment(file).compare
    assert compared is not None
    assert compared.strategies[0].name == f"{tmp_path}/mine.py:SignDescent"
    assert compared.strategies[1].override == {"model.name": f"{tmp_path}/nets.py:Net"}


def test_a_strategy_without_noise_promises_nothing_and_is_not_released(
    fedpriv: Command, file: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(
        "from fedpriv.strategies.non_private import INFO, NonPrivate, build\n"
    )
    out, digest = tmp_path / "out", digest_of(tmp_path / "mine.py")
    file.write_text(EXPERIMENT.replace("SignDescent", "NonPrivate").replace("rounds = 4\n", ""))
    fedpriv("run", file, "--out", out, "--json").json()
    statement = (out / "statement.txt").read_text()
    assert "NO GUARANTEE" in statement
    assert digest in statement
    released = fedpriv(
        "run",
        file,
        "--release",
        "--ledger",
        tmp_path / "l",
        "--new-ledger",
        "--out",
        tmp_path / "r",
    )
    assert released.code == 2
    assert "adds no noise" in released.message


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("self._theta = self._theta[:3] + release", "ValueError: operands could not be broadcast"),
        (
            "self.theta = self._theta",
            "AttributeError: property 'theta' of 'SignDescent'",
        ),
        ("np.linalg.inv(np.zeros((2, 2)))", "LinAlgError: Singular matrix"),
    ],
)
def test_what_fails_in_a_step_is_told_with_its_line(
    fedpriv: Command, file: Path, line: str, sentence: str
) -> None:
    step = "self._theta = self._theta - self.options.learning_rate * np.sign(release)"
    (file.parent / "mine.py").write_text(STRATEGY.replace(step, line))
    done = fedpriv("run", file)
    number = 1 + STRATEGY[: STRATEGY.index(step)].count("\n")
    assert done.code == 2
    told = " ".join(done.message.split())
    assert f"mine.py:SignDescent, line {number} ({line}): {sentence}" in told


def test_what_fedpriv_refuses_in_a_step_is_told_as_it_is(fedpriv: Command, file: Path) -> None:
    step = "np.sign(release)"
    (file.parent / "mine.py").write_text(STRATEGY.replace(step, f"{step} * np.nan"))
    done = fedpriv("run", file)
    assert done.code == 2
    assert "Use a smaller learning rate." in " ".join(done.message.split())
    assert ", line" not in done.message
