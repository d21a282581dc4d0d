"""Files that an experiment names are the server's: a deployed party opens none of them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from fedpriv.simulations.experiment.catalogue import catalogue
from tests.federation.deployed.deployments import Deployment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_OPENED: list[str] = []
_MARK = "named-by-the-server"


def _note(event: str, given: tuple[Any, ...]) -> None:
    if event in ("open", "os.listdir", "os.scandir", "import") and _MARK in str(given[0]):
        _OPENED.append(str(given[0]))


@pytest.fixture(scope="module", autouse=True)
def watched() -> Iterator[None]:
    """A hook stays for the rest of the process, and looks at nothing but names."""
    sys.addaudithook(_note)
    yield
    _OPENED.clear()


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    folder = tmp_path_factory.mktemp("d")
    return Deployment(folder=folder, policy={"strategies": list(catalogue())})


@pytest.mark.parametrize(
    "named",
    [
        {"data": {"schema": "FILE"}},
        {"data": {"schema": "s.toml", "path": "FILE", "public_test": True}},
        {"data": {"schema": "s.toml", "store": "FILE"}},
        {"data": {"schema": "s.toml", "root": "FILE"}},
        {"data": {"schema": "s.toml", "name": "FILE:load"}},
        {"model": {"start": "FILE"}},
        {"model": {"start": "FILE", "start_sha256": "0f" * 32}},
        {"model": {"loss": "FILE:Loss"}},
        {"strategy": {"name": "FILE:Strategy"}},
        {"strategy": {"name": "learned-protection", "protector": "FILE"}},
        {"strategy": {"schedule": {"name": "influence", "public": "FILE"}}},
        {"compare": {"strategies": ["FILE:Strategy"]}},
        {"tuning": {"grid": {"strategy.name": ["FILE:Strategy"]}}},
        {"guests": {"FILE": "sha256:" + "0f" * 32}},
    ],
    ids=str,
)
def test_a_party_opens_no_file_that_an_experiment_names(
    named: dict[str, Any], deployment: Deployment, tmp_path: Path
) -> None:
    """Or a server would have it read what it should not, or wait for ever at a pipe."""
    place = tmp_path / f"{_MARK}.py"
    place.write_text("raise SystemExit('executed')")

    def written(value: Any) -> Any:
        match value:
            case dict():
                return {written(k): written(v) for k, v in value.items()}
            case list():
                return [written(each) for each in value]
            case str():
                return value.replace("FILE", str(place))
        return value

    _OPENED.clear()
    try:
        host = deployment.host("north", deployment.config(**written(named)))
        host.errands.signatory.noise()
    except ValueError:
        pass
    assert not _OPENED


def test_one_that_is_opened_is_noticed(tmp_path: Path) -> None:
    _OPENED.clear()
    (tmp_path / _MARK).write_text("")
    assert _OPENED
