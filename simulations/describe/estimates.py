"""Statistics from released sums: what `statistics.json` holds.

Post-processing of noisy numbers and public facts alone, so that it costs no privacy: counts that
are not negative and add up, a mean in its range, a variance and survival curves that the noise does
not hide, or a refusal in words; each with the standard error of the noise. Errors say how far the
table itself may be from what is told, not the population that it was drawn from.
"""

from __future__ import annotations

from dataclasses import asdict
from math import sqrt
from typing import TYPE_CHECKING, Any

from fedpriv.privacy.unit import sizes_are_public
from fedpriv.simulations.describe.crossed import correlations, two_way
from fedpriv.simulations.describe.numbers import category_column, number_column
from fedpriv.simulations.describe.released import Released
from fedpriv.simulations.describe.suggested import bounds_column
from fedpriv.simulations.describe.survival import survival

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from fedpriv.privacy.adjacency import Adjacency
    from fedpriv.privacy.unit import Unit
    from fedpriv.strategies.common.describing import DescribeOptions
    from fedpriv.strategies.description import Description

    Numbers = NDArray[np.float64]


def statistics_of(
    description: Description,
    options: DescribeOptions,
    *,
    unit: Unit,
    adjacency: Adjacency,
    parties: Sequence[str] = (),
) -> dict[str, Any]:
    """What was released, in the units of the table; ``parties`` are their names."""
    if description.sums is None:
        raise ValueError("statistics must be released before they are reported.")
    task = description.task
    public = sizes_are_public(unit, adjacency)

    def released(sums: Numbers, stddev: float, records: int) -> Released:
        return Released(
            design=description.design,
            sums=sums,
            stddev=stddev,
            columns=task.columns,
            records=records if public else None,
        )

    whole = released(description.sums, description.noise_stddev, description.records)
    averaged = task.persons is not None and description.per_person == "mean"
    by_party = None
    if description.party_sums is not None:
        sizes = task.sizes
        by_party = {
            name: _told(released(sums, description.part_stddev, size), options, public=public)
            for name, sums, size in zip(parties, description.party_sums, sizes, strict=True)
        }
    return {
        "counted": "persons" if averaged else "records",
        **_told(whole, options, public=public),
        "by_party": by_party,
    }


def _told(released: Released, options: DescribeOptions, *, public: bool) -> dict[str, Any]:
    """What follows from the sums over some records: of a party, or of all."""
    total = released.total
    crossed = correlations(released)
    columns = _columns(released, options)
    _complete(columns, crossed)
    return {
        "total": {"count": max(total.value, 0.0), "noise": total.stddev, "public": public},
        "columns": columns,
        "correlation": crossed,
        "tables": [two_way(released, *found) for found in released.every("table")],
        "survival": survival(released, options.survival),
        "release": _release(released),
    }


def _release(released: Released) -> dict[str, Any]:
    """The vector as it was released, block by block, for who computes something else from it."""
    pairs = zip(released.design.blocks, released.design.places(), strict=True)
    return {
        "noise_stddev": released.stddev,
        "blocks": [{**asdict(block), "sums": released.sums[at].tolist()} for block, at in pairs],
    }


def _complete(columns: dict[str, Any], crossed: dict[str, Any] | None) -> None:
    """Columns with released covariances have their moments from there, of complete records."""
    if crossed is None or "mean" not in crossed:
        return
    for index, name in enumerate(crossed["columns"]):
        if name in columns and "mean" not in columns[name]:
            columns[name] |= {
                "mean": crossed["mean"][index],
                "mean_error": crossed["mean_error"][index],
                "moments_of": "complete records",
            }
            if "covariance" in crossed:
                variance = crossed["covariance"][index][index]
                error = crossed["covariance_error"][index][index]
                columns[name] |= {
                    "variance": variance,
                    "variance_error": error,
                    "stddev": sqrt(variance),
                }


def _columns(released: Released, options: DescribeOptions) -> dict[str, Any]:
    """By column, in the order of the table."""
    asked = {
        block.columns[0]
        for block in released.design.blocks
        if block.kind in ("moments", "histogram", "tree")
    }
    found = {}
    if options.magnitudes:
        return {
            facts.name: bounds_column(released, column)
            for column, facts in enumerate(released.columns)
        }
    for column, facts in enumerate(released.columns):
        if column in asked:
            found[facts.name] = (
                number_column(released, column, options.quantiles)
                if facts.is_number
                else category_column(released, column)
            )
    return found
