"""Every block of every page is run by some test, or it says here why not; every command exists."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections import Counter
from types import SimpleNamespace
from typing import Any

import click
import numpy as np
import pytest
from typer.main import get_command

from fedpriv.simulations.cli import app
from tests.docs.blocks import PAGES, ROOT, all_commands, fenced, text_of

HERE = "tests/docs/test_blocks.py"
COMMANDS = "tests/docs/test_commands.py"
TUTORIALS = "tests/docs/test_tutorials.py"
PROJECT = "tests/test_project.py"
GUESTS = "tests/simulations/experiment/test_own_docs.py"

# By page and language: how many blocks there are, and which test runs them, or why none does. Who
# adds a block sees to it that it is run, and counts it here.
RUN_BY: dict[tuple[str, str], tuple[int, str]] = {
    ("README.md", "sh"): (2, COMMANDS),
    ("README.md", "python"): (1, "tests/docs/test_notebooks.py"),
    ("accounting.md", "console"): (2, PROJECT),
    ("accounting.md", "python"): (1, HERE),
    ("audit.md", "toml"): (1, "tests/simulations/audit/test_audit_docs.py"),
    ("audit.md", "text"): (2, "tests/simulations/audit/test_audit_docs.py"),
    ("claims.md", "toml"): (1, "tests/audit/claims/test_claims_docs.py"),
    ("claims.md", "text"): (1, "tests/audit/claims/test_claims_docs.py"),
    ("data.md", "python"): (2, "tests/data/test_data_docs.py"),
    ("data.md", "toml"): (1, "tests/data/test_data_docs.py"),
    ("data.md", "csv"): (1, "tests/data/test_data_docs.py"),
    ("deployment.md", "toml"): (3, "tests/simulations/deploy/test_deployment_docs.py"),
    ("deployment.md", "sh"): (1, "tests/simulations/deploy/test_deployment_docs.py"),
    ("deployment.md", "text"): (2, "not run: several machines; the commands are parsed"),
    ("dossier.md", "sh"): (1, "tests/simulations/dossier/test_dossier_docs.py"),
    ("experiments.md", "sh"): (3, COMMANDS),
    ("experiments.md", "toml"): (3, "tests/simulations/experiment/test_experiment.py"),
    ("fedavg.md", "toml"): (1, "tests/simulations/commands/test_fedavg_docs.py"),
    ("fedavg.md", "console"): (1, PROJECT),
    ("fedavg.md", "python"): (2, "tests/simulations/commands/test_fedavg_docs.py"),
    ("first-comparison.md", "sh"): (4, TUTORIALS),
    ("flower-app.md", "sh"): (1, COMMANDS),
    ("flower-app.md", "python"): (2, "tests/federation/strategy/test_flower_docs.py"),
    ("flower-app.md", "toml"): (1, HERE),
    ("guarantee.md", "python"): (1, HERE),
    ("inference.md", "python"): (1, "tests/simulations/commands/test_inference_docs.py"),
    ("inference.md", "toml"): (3, "tests/simulations/commands/test_inference_docs.py"),
    ("inference.md", "text"): (3, "tests/simulations/commands/test_inference_docs.py"),
    ("install.md", "sh"): (1, "not run: it installs; the commands of the README are run"),
    ("learned-protection.md", "toml"): (1, HERE),
    ("learned-protection.md", "sh"): (1, "not run: hours; parsed, and `show` is run"),
    ("ledger.md", "python"): (1, "tests/privacy/ledger/test_ledger_docs.py"),
    ("ledger.md", "sh"): (2, COMMANDS),
    ("own-model.md", "python"): (6, GUESTS),
    ("own-model.md", "toml"): (2, GUESTS),
    ("own-model.md", "sh"): (3, GUESTS),
    ("own-strategy.md", "python"): (3, GUESTS),
    ("own-strategy.md", "toml"): (1, GUESTS),
    ("own-strategy.md", "sh"): (2, GUESTS),
    ("own-table.md", "python"): (1, TUTORIALS),
    ("own-table.md", "toml"): (2, TUTORIALS),
    ("own-table.md", "sh"): (3, TUTORIALS),
    ("party-policy.md", "toml"): (1, "tests/federation/deployed/test_party_file.py"),
    ("party-policy.md", "sh"): (1, "not run: it needs a deployment; the commands are parsed"),
    ("persons.md", "toml"): (2, "tests/simulations/experiment/test_persons_docs.py"),
    ("persons.md", "python"): (2, "tests/simulations/experiment/test_persons_docs.py"),
    ("report.md", "sh"): (2, COMMANDS),
    ("report.md", "python"): (1, "tests/simulations/report/test_report_docs.py"),
    ("schedules.md", "toml"): (1, "tests/simulations/commands/test_schedule_docs.py"),
    ("schedules.md", "console"): (2, "tests/simulations/commands/test_schedule_docs.py"),
    ("schedules.md", "sh"): (
        2,
        "not run: minutes, on data that one has to bring; the commands are parsed",
    ),
    ("second-order.md", "toml"): (1, HERE),
    ("secure-aggregation.md", "python"): (3, HERE),
    ("secure-aggregation.md", "toml"): (2, HERE),
    ("secure-aggregation.md", "sh"): (
        1,
        "not run: it starts a SuperLink; tests/simulations/engines/test_flower_runtime.py does",
    ),
    ("statistics.md", "python"): (2, "tests/simulations/describe/test_statistics_docs.py"),
    ("statistics.md", "toml"): (3, "tests/simulations/describe/test_statistics_docs.py"),
    ("statistics.md", "sh"): (3, COMMANDS),
}


def test_every_block_is_run_or_says_why_not() -> None:
    blocks = [block for page in PAGES for block in fenced(page)]
    counted = Counter((block.page, block.language) for block in blocks)
    assert counted == {place: number for place, (number, _) in RUN_BY.items()}


@pytest.mark.parametrize(("place", "test"), [(p, test) for p, (_, test) in RUN_BY.items()])
def test_who_is_said_to_run_a_page_names_it(place: tuple[str, str], test: str) -> None:
    if not test.startswith("not run: "):
        page = "*.md" if test == PROJECT else place[0].removesuffix(".md")
        assert page in (ROOT / test).read_text(encoding="utf-8")


WORDS = {"ledger row", "signed statement"}  # of formats, not of the command line
FREE = {"…", "deploy …"}


PROGRAM: click.Command = get_command(app)


def leaf(words: list[str]) -> tuple[click.Command, click.Context, list[str]]:
    """The command that these words reach, and what is left of them."""
    command = PROGRAM
    context, rest = click.Context(command), list(words)
    while isinstance(command, click.Group) and rest and rest[0] in command.commands:
        command = command.commands[rest.pop(0)]
        context = click.Context(command, parent=context)
    return command, context, rest


def test_every_command_that_a_page_names_exists_with_its_options() -> None:
    named = all_commands()
    assert len(named) > 200
    for page, words in named:
        if " ".join(words[:2]) in WORDS | FREE or words[0] in FREE:
            continue
        command, context, rest = leaf(words)
        left = rest[0] if isinstance(command, click.Group) and rest else "-"
        assert left.startswith("-"), f"{page}: no such command: fedpriv {' '.join(words)}"
        if words[-1] in {option for p in command.params for option in p.opts}:
            rest = rest[:-1]  # an option by its name, in a sentence
        try:
            command.make_parser(context).parse_args([word for word in rest if word != "…"])
        except click.UsageError as error:
            raise AssertionError(f"{page}: {error.message}: fedpriv {' '.join(words)}") from None


def test_a_command_that_does_not_exist_is_noticed() -> None:
    command, context, rest = leaf(["deploy", "init", "--outptu", "x"])
    with pytest.raises(click.NoSuchOption):
        command.make_parser(context).parse_args(rest)


def test_every_target_of_make_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    pages = [*PAGES.values(), ROOT / "CONTRIBUTING.md"]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        named = re.findall(r"(?:`|^ {4})make ([a-z-]+)", text, re.MULTILINE)
        assert set(named) <= targets, page.name


def python(page: str) -> list[str]:
    return [block.text for block in fenced(page, "python")]


def executed(page: str, number: int, **names: Any) -> dict[str, Any]:
    """The names that a block leaves, given what the page takes for granted."""
    exec(compile(python(page)[number], page, "exec"), names)  # noqa: S102 (our own page)
    return names


def test_the_python_of_accounting_says_what_it_shows() -> None:
    (block,) = python("accounting.md")
    plan = executed("accounting.md", 0)["plan"]
    (shown,) = re.findall(r"# (84\.49)…", block)
    assert f"{plan.noise_multiplier:.2f}" == shown
    assert plan.epsilon <= 1.0


def test_the_first_example_of_the_guarantee_runs() -> None:
    names = executed("guarantee.md", 0, changes=np.random.default_rng(0).normal(5, 110, 10_000))
    assert names["clip"] > 110


def test_the_fragments_of_a_strategy_and_of_a_loss_do_what_they_should() -> None:
    """They stand for methods of the complete files of their pages."""
    import torch

    complete, fragment, _ = python("own-strategy.md")
    names: dict[str, Any] = {}
    exec(compile(complete, "signs.py", "exec"), names)  # noqa: S102 (our own page)
    exec(compile(fragment, "own-strategy.md", "exec"), names)  # noqa: S102 (our own page)
    state = SimpleNamespace(
        noise_stddev=0.1,
        options=SimpleNamespace(learning_rate=1.0),
        task=SimpleNamespace(regulariser=0.0),
        _theta=np.zeros(50),
    )
    names["_update"](state, np.full(50, 0.01))  # all of it noise: nothing is left
    np.testing.assert_array_equal(state._theta, 0.0)
    names["_update"](state, np.full(50, 10.0))
    np.testing.assert_allclose(state._theta, -10.0, rtol=1e-3)

    (check,) = (text for text in python("own-model.md") if text.startswith("def check_labels"))
    exec(compile(check, "own-model.md", "exec"), names)  # noqa: S102 (our own page)
    names["check_labels"](None, torch.tensor([-1.0, 0.5]))
    with pytest.raises(ValueError, match="must be numbers in"):
        names["check_labels"](None, torch.tensor([1.5]))


def tables(page: str) -> list[dict[str, Any]]:
    return [tomllib.loads(block.text) for block in fenced(page, "toml")]


@pytest.mark.parametrize("page", ["learned-protection.md", "second-order.md"])
def test_the_options_of_a_page_are_accepted(page: str) -> None:
    from fedpriv.simulations.experiment.catalogue import checked
    from fedpriv.simulations.experiment.file import parse_experiment

    (values,) = tables(page)
    checked(parse_experiment({"data": {"name": "synthetic"}, **values}))


def test_the_files_of_secure_aggregation_are_accepted() -> None:
    from fedpriv.simulations.experiment.file import parse_experiment

    shares, connection = tables("secure-aggregation.md")
    strategy = {"strategy": {"name": "gradient-perturbation"}}
    study = parse_experiment({"data": {"name": "synthetic"}, **strategy, **shares})
    assert study.privacy.noise_at == "parties"
    assert connection["superlink"][connection["superlink"]["default"]]["insecure"] is True


def test_the_components_of_the_flower_app_are_in_its_file() -> None:
    (project,) = tables("flower-app.md")
    defined = {
        target.id
        for block in python("flower-app.md")
        for node in ast.parse(block).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    components = project["tool"]["flwr"]["app"]["components"].values()
    assert {component.partition(":")[2] for component in components} <= defined


def test_numbers_in_the_ring_are_what_the_page_says() -> None:
    from fedpriv.secagg import FixedPoint

    block = python("secure-aggregation.md")[0]
    answers = np.random.default_rng(0).uniform(-1, 1, (3, 784))
    grid = FixedPoint.for_sum(bound=1e6, sensitivity=2.0, dimension=784, noise_stddev=100.0)
    total = SimpleNamespace(vector=grid.encode_sum(answers))
    given = {"FixedPoint": FixedPoint, "answer": answers[0], "answers": answers, "total": total}
    assert executed("secure-aggregation.md", 0, **given)["grid"] == grid
    (bits, step) = re.findall(r"# (\d+) bits, step 2\^-(\d+)", block)[0]
    assert (grid.bits, grid.step) == (int(bits), 2.0 ** -int(step))


def test_the_calls_that_drive_the_protocol_exist_and_take_these_arguments() -> None:
    """Two blocks are one side each of an exchange: they are called by name, with what they name."""
    from fedpriv.federation.engines.grid import GridFederation
    from fedpriv.federation.party.client_app import ContextStore, client_app
    from fedpriv.federation.protocol.level import Protection
    from fedpriv.secagg import Enrolled, Parameters, Party, Round, Server

    known: dict[str, Any] = {
        "Enrolled": Enrolled, "GridFederation": GridFederation, "Parameters": Parameters,
        "Party": Party, "Protection": Protection, "Round": Round, "Server": Server,
        "client_app": client_app, "ContextStore": ContextStore,
        "party": Party, "server": Server, "federation": GridFederation,
    }  # fmt: skip
    seen = 0
    for block in python("secure-aggregation.md")[1:]:
        for call in (node for node in ast.walk(ast.parse(block)) if isinstance(node, ast.Call)):
            place, _, method = ast.unparse(call.func).partition(".")
            if place not in known:
                assert place == "grid"
                continue
            function = getattr(known[place], method) if method else known[place]
            bound = place[0].islower() and method  # a method, called on what a class makes
            positional = [None] * (len(call.args) + bool(bound))
            keywords = {str(word.arg): None for word in call.keywords}
            inspect.signature(function).bind(*positional, **keywords)
            seen += 1
    assert seen > 15


def test_every_built_in_experiment_is_among_the_findings() -> None:
    names = {path.stem for path in (ROOT / "simulations" / "experiments").glob("*.toml")}
    assert names <= set(re.findall(r"`(\w+)`", text_of("findings.md")))


def test_every_strategy_is_in_the_page_that_helps_to_choose() -> None:
    from fedpriv.strategies import STRATEGIES

    page = text_of("choosing.md")
    missing = {name for name in STRATEGIES if f"`{name}`" not in page}
    assert {name for name in missing if not name.startswith("local-")} == set()
