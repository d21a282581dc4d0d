"""`fedpriv list`: everything that an experiment can name."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedpriv import data
from fedpriv.simulations.experiment.catalogue import catalogue


def test_strategies_are_listed_with_their_options(fedpriv: Callable[..., Any]) -> None:
    entries = {entry["name"]: entry for entry in fedpriv("list", "strategies", "--json").json()}
    aggregated = {"output-perturbation", "gradient-perturbation", "objective-perturbation"}
    others = {"pathak", "party-alone", "non-private", "pooled", "inference"}
    adaptive = {"second-order", "adaptive-clipping", "agd", "learned-protection"}
    local = {f"local-{name}" for name in aggregated}
    averaging = {"federated-averaging", "scaffold"}
    assert set(entries) == aggregated | adaptive | averaging | local | others
    assert entries["gradient-perturbation"]["options"]["learning_rate"] == "auto"
    assert entries["gradient-perturbation"]["private"] is True
    assert entries["party-alone"]["private"] is False
    assert all(entry["summary"] for entry in entries.values())


def test_one_strategy_is_told_with_its_algorithm_and_every_option(
    fedpriv: Callable[..., Any],
) -> None:
    for name, info in catalogue().items():
        entry = fedpriv("list", "strategies", name, "--json").json()
        assert set(entry["meanings"]) == set(info.options.model_fields), name
        assert entry["algorithm"] or name == "party-alone"
    text = fedpriv("list", "strategies", "agd").out
    assert "Lee and Kifer 2018" in text
    assert "loss_clip = 3.0\n    The bound on the loss of one record" in text
    assert "Did you mean 'agd'?" in fedpriv("list", "strategies", "agdd").message
    assert "are for `fedpriv list strategies`" in fedpriv("list", "data", "agd").message


def test_the_page_about_strategies_is_what_the_code_says(fedpriv: Callable[..., Any]) -> None:
    page = Path(__file__).parents[3] / "docs" / "strategies.md"
    made = fedpriv("list", "strategies", "--markdown").out
    assert page.read_text() == made, "renew it: fedpriv list strategies --markdown"


def test_data_are_listed_with_what_they_need(fedpriv: Callable[..., Any]) -> None:
    entries = fedpriv("list", "data", "--json").json()
    assert [entry["name"] for entry in entries] == list(data.names())
    assert "FEDPRIV_DATA" in next(e for e in entries if e["name"] == "mnist")["needs"]


def test_experiments_are_listed_with_their_files(fedpriv: Callable[..., Any]) -> None:
    entries = fedpriv("list", "experiments", "--json").json()
    assert {"quickstart", "chem97", "jayaraman2018"} <= {entry["name"] for entry in entries}
    assert all(Path(entry["path"]).is_file() for entry in entries)


def test_text_names_what_json_names(fedpriv: Callable[..., Any]) -> None:
    for topic in ("strategies", "data", "experiments"):
        text = fedpriv("list", topic)
        assert text.code == 0
        for entry in json.loads(fedpriv("list", topic, "--json").out):
            assert entry["name"] in text.out
            assert entry["summary"] in text.out


def test_an_unknown_topic_is_refused(fedpriv: Callable[..., Any]) -> None:
    assert fedpriv("list", "models").code == 2
