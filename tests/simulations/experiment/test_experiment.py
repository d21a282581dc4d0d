"""Experiment files: what is written works as written, and what is wrong is said in one sentence."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpriv._toml import to_toml
from fedpriv.simulations.experiment.catalogue import checked, inheriting
from fedpriv.simulations.experiment.complaints import _keys
from fedpriv.simulations.experiment.file import (
    Experiment,
    parse_experiment,
    read_experiment,
)
from fedpriv.simulations.experiment.sections import StrategySection
from fedpriv.simulations.experiment.sources import built_in_experiments

EXAMPLE = """
[data]
name = "chem97"
partition = "iid"
parties = 20
test_fraction = 0.2

[model]
name = "logistic"
l2 = 0.001

[strategy]
name = "gradient-perturbation"
rounds = 100
clip = 1.0
learning_rate = "auto"

[privacy]
epsilon = 1.0
delta = 1e-6
adjacency = "replace-one"

[run]
seed = 0
engine = "vectorized"

[compare]
strategies = ["gradient-perturbation", "output-perturbation"]
epsilons = [0.5, 1]
seeds = 5
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(EXAMPLE)
    return path


def changed(**sections: dict[str, Any]) -> dict[str, Any]:
    values = tomllib.loads(EXAMPLE)
    for name, keys in sections.items():
        values[name] = {**values.get(name, {}), **keys}
    return values


def test_every_key_of_the_documented_example_is_read(file: Path) -> None:
    experiment = read_experiment(file)
    assert experiment.name == "mine"
    assert experiment.data.parties == 20
    assert experiment.strategy.options == {"rounds": 100, "clip": 1.0, "learning_rate": "auto"}
    assert experiment.compare is not None
    assert experiment.compare.epsilons == (0.5, 1.0)
    assert [entry.name for entry in experiment.compare.strategies] == [
        "gradient-perturbation",
        "output-perturbation",
    ]


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"privcy": {}}, "privcy is not a known key. Did you mean 'privacy'?"),
        ({"data": {"partys": 3}}, "data.partys is not a known key. Did you mean 'parties'?"),
        ({"privacy": {"epsilon": 0}}, "privacy.epsilon must be greater than 0 or 'inf', got 0."),
        ({"privacy": {"epsilon": float("nan")}}, "privacy.epsilon must be finite"),
        ({"privacy": {"epsilon": "one"}}, "privacy.epsilon must be a number or 'inf', got 'one'."),
        ({"privacy": {"delta": 1}}, "privacy.delta must be less than 1, got 1."),
        ({"privacy": {"adjacency": "replace"}}, "Did you mean 'replace-one'?"),
        ({"data": {"parties": 0}}, "data.parties must be at least 1, got 0."),
        ({"data": {"parties": True}}, "data.parties must be an integer, got True."),
        ({"data": {"parties": 2.5}}, "data.parties must be an integer"),
        ({"data": {"partition": "idi"}}, "Did you mean 'iid'?"),
        ({"data": {"alpha": 1.0}}, "data: alpha is for partition = 'dirichlet' only."),
        ({"data": {"path": "x.csv"}}, "data: needs either name"),
        ({"model": {"l2": -1}}, "model.l2 must be at least 0 or 'auto', got -1."),
        (
            {"run": {"engine": "cloud"}},
            "run.engine must be 'vectorized', 'local', 'sharded', 'ray'",
        ),
        ({"run": {"evaluate_every": "never"}}, "must be an integer or 'auto', got 'never'."),
        ({"run": {"seed": -1}}, "run.seed must be at least 0"),
        ({"compare": {"seeds": 0}}, "compare.seeds must be at least 1"),
        (
            {"compare": {"epsilons": [1, -2]}},
            "compare.epsilons.1 must be greater than 0 or 'inf', got -2.",
        ),
        ({"compare": {"strategies": [3]}}, "compare.strategies.0 must be a table, got 3."),
        ({"strategy": {"name": 3}}, "strategy.name must be text, got 3."),
    ],
)
def test_what_is_wrong_with_a_file_is_one_sentence(
    sections: dict[str, dict[str, Any]], message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as refusal:
        parse_experiment(changed(**sections))
    assert "\n" not in str(refusal.value)


def test_a_missing_table_is_named() -> None:
    with pytest.raises(ValueError, match=r"^strategy is missing\. Add \[strategy\] with a name"):
        parse_experiment({"data": {"name": "chem97"}})


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"name": "gradient-pertubation"}, "Did you mean 'gradient-perturbation'?"),
        ({"rouns": 3}, "strategy.rouns is not a known key. Did you mean 'rounds'?"),
        ({"rounds": 0}, "strategy.rounds must be at least 1, got 0."),
        ({"rounds": "ten"}, "strategy.rounds must be an integer, got 'ten'."),
        ({"rounds": 2.5}, "strategy.rounds must be an integer, got 2.5."),
        ({"clip": "tight"}, "strategy.clip must be"),
    ],
)
def test_a_strategy_and_its_options_are_checked(section: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        checked(parse_experiment(changed(strategy=section)))


def test_minimisers_of_a_network_are_refused() -> None:
    values = changed(strategy={"name": "output-perturbation"}, model={"name": "mlp"})
    values["strategy"] = {"name": "output-perturbation"}
    with pytest.raises(ValueError, match="'output-perturbation' needs a convex problem"):
        checked(parse_experiment(values))


def test_checking_fills_in_every_option_and_is_idempotent() -> None:
    once = checked(parse_experiment(changed()))
    assert once.strategy.options["momentum"] == 0.9
    assert checked(once) == once


def test_overrides_reach_any_key_and_need_no_quotes(file: Path) -> None:
    experiment = read_experiment(
        file,
        [
            "privacy.epsilon=0.25",
            "strategy.learning_rate=auto",
            "data.partition=natural",
            "compare.epsilons=[0.1, 2]",
            "tuning.on=digits",
        ],
    )
    assert experiment.privacy.epsilon == 0.25
    assert experiment.data.partition == "natural"
    assert experiment.compare is not None
    assert experiment.compare.epsilons == (0.1, 2.0)
    assert experiment.tuning is not None


@pytest.mark.parametrize("override", ["epsilon", "=3", "privacy..epsilon=3", "name.x=3"])
def test_a_malformed_override_is_refused(file: Path, override: str) -> None:
    with pytest.raises(ValueError, match="--set"):
        read_experiment(file, [override])


def test_another_strategy_by_override_leaves_the_options_of_the_old_one_behind(file: Path) -> None:
    experiment = read_experiment(file, ["strategy.name=output-perturbation"])
    assert checked(experiment).strategy.name == "output-perturbation"
    assert "rounds" not in experiment.strategy.options
    with pytest.raises(ValueError, match="rounds is not a known key"):
        checked(read_experiment(file, ["strategy.name=output-perturbation", "strategy.rounds=3"]))


def test_a_compared_strategy_inherits_the_options_that_it_knows() -> None:
    experiment = parse_experiment(changed(strategy={"clip": 0.5}))
    twin = inheriting(experiment, StrategySection(name="local-gradient-perturbation"))
    assert twin.strategy.options["clip"] == 0.5
    output = inheriting(experiment, StrategySection(name="output-perturbation"))
    assert "clip" not in output.strategy.options


def test_the_hash_follows_what_is_computed_and_nothing_else() -> None:
    base = parse_experiment(changed())
    renamed = parse_experiment(
        {**changed(run={"checkpoint_seconds": 9.0, "evaluate_every": 7}), "name": "other"}
    )
    assert renamed.config_hash == base.config_hash
    for sections in (
        {"privacy": {"epsilon": 2}},
        {"strategy": {"rounds": 99}},
        {"strategy": {"start": 1.0}},  # an option of a strategy of one's own
        {"data": {"parties": 21}},
        {"model": {"l2": 0.01}},
        {"run": {"seed": 1}},
    ):
        assert parse_experiment(changed(**sections)).config_hash != base.config_hash


def test_a_twin_is_known_by_whose_settings_it_has_and_others_keep_their_hash() -> None:
    base = parse_experiment(changed())
    assert "twin_of" not in base._section_values("privacy")
    free = base.replaced(privacy={"epsilon": "inf"})
    twins = [free.replaced(privacy={"twin_of": epsilon}) for epsilon in (0.1, 1.0)]
    assert len({each.config_hash for each in (base, free, *twins)}) == 4


def test_strategies_of_one_seed_share_their_parties() -> None:
    base = parse_experiment(changed())
    other = base.replaced(strategy={"rounds": 5}, privacy={"epsilon": 9.0})
    assert other.seed_of("partition") == base.seed_of("partition")
    bounded = base.replaced(data={"feature_norm": 3.0, "intercept": 0.5, "scaling": "divide"})
    assert bounded.seed_of("test split") == base.seed_of("test split")
    assert bounded.run_name != base.run_name
    assert base.replaced(run={"seed": 1}).seed_of("partition") != base.seed_of("partition")
    assert base.seed_of("partition") != base.seed_of("start")


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text('[data]\npath = "a.csv"\nschema = "b.toml"\n[strategy]\nname = "pooled"\n')
    data = read_experiment(path).data
    assert data.path == str(tmp_path / "a.csv")
    assert data.schema_path == str(tmp_path / "b.toml")
    assert data.title == "a"


@pytest.mark.parametrize("content", ["[data", "data = 3\ndata = 4"])
def test_a_file_that_is_not_toml_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "x.toml").write_text(content)
    with pytest.raises(ValueError, match="is not TOML"):
        read_experiment(tmp_path / "x.toml")


def test_a_missing_file_names_the_built_in_ones() -> None:
    with pytest.raises(ValueError, match=r"neither a file nor one of .*quickstart"):
        read_experiment("quikstart")


def test_every_built_in_experiment_is_valid_and_says_what_it_is_for() -> None:
    assert {"chem97", "jayaraman2018", "quickstart"} <= set(built_in_experiments())
    for name in built_in_experiments():
        experiment = read_experiment(name)
        assert checked(experiment).name == name
        assert experiment.summary


def test_a_written_experiment_reads_back_the_same() -> None:
    experiment = checked(parse_experiment(changed(tuning={"on": "digits", "grid": {"a.b": [1]}})))
    assert Experiment.model_validate(tomllib.loads(to_toml(experiment.to_dict()))) == experiment


Scalar = st.one_of(
    st.booleans(),
    st.integers(-(2**62), 2**62),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"])),
)
Key = st.text(st.characters(exclude_categories=["Cs"]))
Value = st.recursive(
    Scalar, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(Key, inner, max_size=3)
)


@given(st.dictionaries(Key, Value, max_size=5))
def test_toml_reads_back_what_was_written(values: dict[str, Any]) -> None:
    assert tomllib.loads(to_toml(values)) == values


def test_the_documented_file_is_an_experiment_and_documented_keys_exist() -> None:
    text = (Path(__file__).parents[3] / "docs" / "experiments.md").read_text()
    example, tuning, compared = (
        tomllib.loads(block) for block in re.findall(r"```toml\n(.*?)```", text, re.S)
    )
    experiment = parse_experiment({**example, **tuning})
    assert checked(experiment).tuning is not None
    assert parse_experiment({**example, **compared}).compare is not None
    for key in re.findall(r"`((?:data|model|privacy|run|tuning|compare)\.(?!json|npz)\w+)`", text):
        section, name = key.split(".")
        assert name in _keys(Experiment, [section]), key


def test_paths_of_the_command_line_are_relative_to_where_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Absolute from there on: an engine's processes, and a resumed run, may be elsewhere."""
    (tmp_path / "files").mkdir()
    file = tmp_path / "files" / "study.toml"
    file.write_text(
        '[data]\npath = "own.csv"\nschema = "own.toml"\n'
        '[strategy]\nname = "learned-protection"\nprotector = "mine.json"\n'
    )
    monkeypatch.chdir(tmp_path)
    found = read_experiment(file, ["data.path=other.csv"])
    assert found.data.path == str(tmp_path / "other.csv")
    assert found.data.schema_path == str(tmp_path / "files" / "own.toml")
    assert found.strategy.options["protector"] == str(tmp_path / "mine.json")
