"""`fedpriv list`: everything that an experiment can name."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedpriv import data


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
