"""OpenDP's errors of counts, a mean and three quartiles: the central mechanism, with all records.

Arguments: file of records, JSON of settings. Prints one JSON object: root mean squared errors over
many releases. Every statistic has the whole budget. Gaussian noise is accounted for in zCDP, as
OpenDP does; each quartile is a noisy maximum over candidates, with a third of the budget.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import opendp.prelude as dp  # type: ignore[import-not-found]

dp.enable_features("contrib", "idealized-numerics")
CANDIDATES = 1025


def main(path: str, settings: dict[str, Any]) -> None:
    held = np.load(path)
    values, flags = held["values"], held["flags"].astype(bool)
    low, high = settings["bounds"]
    size, repeats = len(values), settings["repeats"]

    def priced(measurement: Any) -> Any:
        return dp.c.make_fix_delta(dp.c.make_zCDP_to_approxDP(measurement), settings["delta"])

    def calibrated(make: Any, bounds: tuple[float, float]) -> Any:
        """Change-one neighbours are two steps of the symmetric distance apart."""
        return dp.binary_search_chain(
            lambda scale: priced(make(scale)),
            d_in=2,
            d_out=(settings["epsilon"], settings["delta"]),
            bounds=bounds,
        )

    table = dp.symmetric_distance()
    numbers = dp.vector_domain(dp.atom_domain(bounds=(low, high), nan=False), size=size)
    answers = dp.vector_domain(dp.atom_domain(T=bool), size=size)
    mean = dp.t.make_mean(numbers, table)
    counts = dp.t.make_count_by_categories(
        answers, table, categories=[False, True], null_category=False, MO=dp.L2Distance[int]
    )
    candidates = np.linspace(low, high, CANDIDATES).tolist()
    scores = [
        dp.t.make_quantile_score_candidates(numbers, table, candidates=candidates, alpha=alpha)
        for alpha in settings["quantiles"]
    ]
    zcdp = dp.zero_concentrated_divergence()
    noisy_mean = calibrated(lambda scale: mean >> dp.m.then_gaussian(scale), (1e-3, 1e6))
    noisy_counts = calibrated(lambda scale: counts >> dp.m.then_gaussian(scale), (0.5, 1e6))
    noisy_ranks = calibrated(
        lambda scale: dp.c.make_composition(
            [score >> dp.m.then_noisy_max(zcdp, scale=scale, negate=True) for score in scores]
        ),
        (0.5, 1e6),
    )
    found: dict[str, Any] = {"mean": [], "counts": [], "ranks": []}
    as_list, flag_list = values.tolist(), flags.tolist()
    truth = np.array([(~flags).sum(), flags.sum()])
    ordered = np.sort(values)
    for _ in range(repeats):
        found["mean"].append(noisy_mean(as_list) - values.mean())
        found["counts"].append(np.array(noisy_counts(flag_list)) - truth)
        told = [candidates[int(index)] for index in noisy_ranks(as_list)]
        found["ranks"].append(
            np.interp(told, ordered, np.arange(size)) - np.array(settings["quantiles"]) * size
        )
    print(json.dumps({k: float(np.sqrt(np.mean(np.square(v)))) for k, v in found.items()}))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
