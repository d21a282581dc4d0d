"""Files of a description: statistics.json, beside plan, statement and result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.unit import Unit
from fedpriv.simulations.describe.estimates import statistics_of
from fedpriv.simulations.run.files import read_json, write_json
from fedpriv.simulations.run.release_outcome import STATISTICS, sift
from fedpriv.strategies.common.describing import DescribeOptions

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from fedpriv.simulations.experiment.file import Experiment
    from fedpriv.strategies.description import Description

STATISTICS_FILE = "statistics.json"
"""What a description has for a model: a signed statement has its digest."""


def write_statistics(
    directory: Path, description: Description, experiment: Experiment, *, parties: Sequence[str]
) -> None:
    """What was released, and nothing else: `release_outcome` states each field."""
    found = statistics_of(
        description,
        DescribeOptions.model_validate(experiment.strategy.options),
        unit=Unit(experiment.privacy.unit),
        adjacency=Adjacency(experiment.privacy.adjacency),
        parties=parties,
    )
    write_json(directory / STATISTICS_FILE, sift(found, STATISTICS))


def read_statistics(directory: Path) -> dict[str, Any]:
    """Those of a finished description."""
    found: dict[str, Any] = read_json(directory / STATISTICS_FILE)
    return found
