"""Hostile paths: modules, losses, files and places that a release takes on its way."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedpriv._toml import to_toml
from fedpriv.learning.loss_checks import LossRefuted, require_not_refuted
from fedpriv.learning.losses import HuberRegression
from fedpriv.learning.network import NetworkModel, small_cnn
from fedpriv.learning.threads import one_thread
from fedpriv.simulations.experiment.file import read_experiment
from fedpriv.simulations.run.launch import carry_through, open_session
from fedpriv.simulations.run.ledgers import open_ledger
from fedpriv.simulations.run.session import carry_on
from fedpriv.strategies import NoisyGradients
from tests.audit.examination import difference
from tests.audit.neighbours import GRADIENTS, Case, neighbours, table, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.audit.laboratory import Laboratory, Watch

SIDE, CROWD = 8, 13
"""Pixels a side; parties of one record: 13 are computed by fours, 12 by threes."""


# What a record does to the answers of others.


@dataclass(frozen=True, kw_only=True)
class Images(Case):
    """A table of images, every one of another party."""

    def schema(self) -> dict[str, Any]:
        number = {"kind": "number", "min": -1, "max": 1, "fill": 0}
        return {
            "label": "y",
            "positive": "1",
            "party": "p",
            "out_of_range": "clamp",
            "columns": {
                **{f"x{i:02}": number for i in range(SIDE * SIDE)},
                "y": {"kind": "category", "values": [0, 1]},
                "p": {"kind": "category", "values": [f"p{j:02}" for j in range(CROWD)]},
            },
        }


def test_a_record_that_leaves_flips_no_other_in_the_convolutional_network(
    laboratory: Laboratory, tmp_path: Path
) -> None:
    """All records at kinks of the first network, whose weights are public: it was 2.7 C."""
    case = Images(
        name="images",
        strategy={**GRADIENTS, "rounds": 1, "learning_rate": 0.1, "clip": 0.1},
        adjacency="add-remove",
        model={"name": "cnn", "shape": [1, SIDE, SIDE]},
        data={
            "test_fraction": 0.0,
            "intercept": 0.0,
            "feature_norm": float(SIDE),
            "records": [1] * CROWD,
        },
    )
    model = small_cnn(shape=(1, SIDE, SIDE), classes=1)
    theta = model.initial(np.random.default_rng(0))
    with one_thread():
        kinks = _at_kinks(model, theta, np.random.default_rng(1), tries=18)
        worst = max(kinks, key=lambda x: _flips(model, theta, x))
    row = {f"x{i:02}": repr(float(value)) for i, value in enumerate(worst)} | {"y": "1"}
    rows = [{**row, "p": f"p{j:02}"} for j in range(CROWD)]
    one = laboratory.run(case, rows, tmp_path / "one")
    assert one.code == 0, one.said
    other = laboratory.run(case, rows[:-1], tmp_path / "other", script=one)
    assert difference(case, one, other) == []


def _at_kinks(
    model: NetworkModel, theta: Tensor, rng: np.random.Generator, *, tries: int
) -> list[Tensor]:
    """Images at which many units of the first dense layer are zero but for rounding: Newton's."""
    found = []
    for _ in range(tries):
        x = torch.tensor(rng.uniform(-1, 1, model.features))
        units = torch.tensor(rng.choice(32, size=int(rng.integers(4, 24)), replace=False))
        for _ in range(40):
            x = x.detach().requires_grad_()
            values = _hidden(model, theta, x.unsqueeze(0))[0, units]
            slopes = [torch.autograd.grad(v, x, retain_graph=True)[0] for v in values]
            step = torch.linalg.lstsq(torch.stack(slopes), values.detach()[:, None], driver="gelsd")
            x = (x - step.solution[:, 0]).detach()
            if float(values.detach().abs().max()) < 1e-13:
                found.append((x / x.abs().max() / 1.01).float())
                break
    return found


def _hidden(model: NetworkModel, theta: Tensor, records: Tensor) -> Tensor:
    layers = model.module[:8]  # type: ignore[index]
    names = {name for name, _ in layers.named_parameters()}
    state = {k: v for k, v in model._state(model.module, theta).items() if k in names}
    found: Tensor = functional_call(layers, state, (records.view(-1, 1, SIDE, SIDE),))
    return found


def _flips(model: NetworkModel, theta: Tensor, x: Tensor) -> int:
    """How many units are on one side of their kink among three records, and not among four."""
    few, many = (_hidden(model, theta.float(), x.repeat(n, 1))[0] > 0 for n in (3, 4))
    return int((few != many).sum())


# What a module keeps of records.


class FirstRecords(nn.Module):
    """Centred by the mean of the first records that it sees, as Glow's layers are."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)
        self.mean: Tensor | None = None

    def forward(self, records: Tensor) -> Tensor:
        if self.mean is None:
            self.mean = records.detach().mean(0)
        found: Tensor = self.layer(records - self.mean)
        return found


class LastRecords(FirstRecords):
    """Centred by the mean of the records before."""

    def forward(self, records: Tensor) -> Tensor:
        mean = torch.zeros(3, dtype=records.dtype) if self.mean is None else self.mean
        self.mean = records.detach().mean(0)
        found: Tensor = self.layer(records - mean)
        return found


@pytest.mark.parametrize("kind", [FirstRecords, LastRecords])
def test_no_module_takes_its_scale_from_the_records_that_it_sees(kind: type[nn.Module]) -> None:
    """One that took it from the first ones passed: one record of 50 moved a sum by 10.9 C."""
    with pytest.raises(ValueError, match="module must"):
        NetworkModel(module=kind(), input_shape=(3,))


# What a run that is taken up again goes on with.


def test_a_release_goes_on_with_the_schema_that_it_began_with(tmp_path: Path) -> None:
    """Another one was taken, that no release may have: "records: 49" told of a missing value."""
    case = Case(name="other schema", strategy=GRADIENTS, data={"test_fraction": 0.0})
    rows, out, book = table("binary"), tmp_path / "out", tmp_path / "own.ledger"
    rows[5]["age"] = ""
    study = write(case, rows, tmp_path / "data")
    begun = open_session(
        read_experiment(study), out=out, release=True, ledger=book, new_ledger=True
    )
    with open_ledger(begun) as ledger:
        assert carry_on(begun, ledger=ledger, stop=lambda: True) is None
    known, path = case.schema(), tmp_path / "data" / "schema.toml"
    dropping = {**known, "missing": "drop", "columns": dict(known["columns"])}
    dropping["columns"]["age"] = {"kind": "number", "min": 0, "max": 100}
    path.write_text(to_toml(dropping))
    with pytest.raises(ValueError, match="was changed since the run"):
        open_session(None, resume=out, release=True)
    path.write_text("# the same\n" + to_toml(known))
    done = carry_through(open_session(None, resume=out, release=True))
    assert done is not None
    assert done["records"] == len(rows)


# What a loss declares of labels that a table can have.


@dataclass(frozen=True, kw_only=True)
class Weighted(HuberRegression):
    """Huber's loss, times a weight of its labels that the constants leave out."""

    domain_radius = inf
    labels: Callable[[Tensor], Tensor]
    weight: float

    def _times(self, y: Tensor) -> Tensor:
        return torch.where(self.labels(y), self.weight, 1.0).to(y.dtype)

    def value(self, score: Tensor, y: Tensor) -> Tensor:
        return self._times(y) * super().value(score, y)

    def slope(self, score: Tensor, y: Tensor) -> Tensor:
        return self._times(y) * super().slope(score, y)

    def curvature(self, score: Tensor, y: Tensor) -> Tensor:
        return self._times(y) * super().curvature(score, y)


LABELS: dict[str, Callable[[Tensor], Tensor]] = {
    "censored": lambda y: y.abs() == 1,
    "zero": lambda y: y == 0,
    "near zero": lambda y: y.abs() < 0.01,
    "near the ends": lambda y: (y.abs() > 0.95) & (y.abs() <= 1),
}


@pytest.mark.parametrize("weight", [1.02, 3.0])
@pytest.mark.parametrize("which", LABELS)
def test_no_label_of_a_table_has_a_steeper_loss_than_is_declared(which: str, weight: float) -> None:
    """Labels were drawn from [-1000, 1000]: hardly one of a table's, which are in [-1, 1]."""
    harmless, steep = (
        Weighted(threshold=1.0, labels=LABELS[which], weight=each) for each in (1.0, weight)
    )
    require_not_refuted(harmless, task="regression")
    with pytest.raises(LossRefuted, match=r"lipschitz|smoothness"):
        require_not_refuted(steep, task="regression")


# What a strategy of one's own may not take over.


@pytest.mark.parametrize("key", ["_release", "_query", "_stream", "_reserve", "learn", "attach"])
def test_no_class_that_is_mixed_in_takes_over_question_noise_or_ledger(key: str) -> None:
    """Only the class itself was looked at: with a mixed-in `_release` it signed for no noise."""
    mixed_in = type("Quiet", (), {key: lambda *_: None})
    with pytest.raises(TypeError, match="must not be overridden"):
        type("Own", (mixed_in, NoisyGradients), {"_update": lambda *_: None})
    harmless = type("Memory", (), {"_state": lambda *_: {}, "average": lambda *_: None})
    type("Own", (harmless, NoisyGradients), {"_update": lambda *_: None})


# What is published beside the releases.

STRATEGIES: dict[str, dict[str, Any]] = {
    "gradients": {"name": "gradient-perturbation", "rounds": 3},
    "output": {"name": "output-perturbation"},
    "joint": {"name": "output-perturbation", "fit": "joint"},
    "objective": {"name": "objective-perturbation"},
    "quantile": {"name": "adaptive-clipping", "rounds": 3},
    "coordinate": {"name": "adaptive-clipping", "rounds": 3, "rule": "coordinate"},
    "agd": {"name": "agd", "rounds": 4},
    "learned": {"name": "learned-protection"},
}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_neighbours_with_the_same_releases_publish_the_same_bytes(
    strategy: str, laboratory: Laboratory, tmp_path: Path
) -> None:
    """The model, the plan and the statement of every strategy follow from releases alone.

    The audit leaves out parameters, and of adaptive strategies plan and statement: they differ
    where releases do. Here all releases of the one run are given to the other.
    """
    case = Case(name=strategy, strategy=STRATEGIES[strategy])
    rows = table(case.task)
    one = laboratory.run(case, rows, tmp_path / "one")
    assert one.code == 0, one.said
    _, others = list(neighbours(case, rows))[2]  # the extreme record
    other = laboratory.run(case, others, tmp_path / "other", script=one)
    assert _published(one) == _published(other)


def _published(watch: Watch) -> dict[str, bytes]:
    """All files of an outcome, with the names that were drawn for this run blanked out."""
    drawn = (
        watch.json("result.json")["run"],
        watch.json("statement.json")["ledger"]["head"],
        str(watch.directory.parent),
    )
    files = watch.files()
    with np.load(watch.directory / "model.npz") as arrays:
        files |= {f"model.npz/{key}": arrays[key].tobytes() for key in arrays}
    del files["model.npz"]  # a zip file, with the time
    for name in drawn:
        files = {key: text.replace(name.encode(), b"-") for key, text in files.items()}
    return files


@pytest.mark.parametrize("place", ["own.ledger", "private/own.ledger"])
def test_no_ledger_lies_among_the_files_of_a_release(place: str, tmp_path: Path) -> None:
    """`Result.save`, which copies what is not private, copied it."""
    study = write(Case(name="ledger", strategy=GRADIENTS), table("binary"), tmp_path / "data")
    out = tmp_path / "out"
    (out / place).parent.mkdir(parents=True)
    with pytest.raises(ValueError, match="must not lie in the directory of the run"):
        open_session(
            read_experiment(study), out=out, release=True, ledger=out / place, new_ledger=True
        )
    assert not (out / place).exists()
    beside = tmp_path / "own.ledger"
    (out / place).parent.rmdir()
    begun = open_session(
        read_experiment(study), out=out, release=True, ledger=beside, new_ledger=True
    )
    Path(str(begun.identity.ledger)).rename(out / "moved.ledger")
    with pytest.raises(ValueError, match="must not lie in the directory of the run"):
        open_session(None, resume=out, release=True, ledger=out / "moved.ledger")
