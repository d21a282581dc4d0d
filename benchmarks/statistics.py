"""Statistics of a table: a party's sums against pandas' describe and numpy's histograms.

Run with ``python -m benchmarks.statistics [--json]``. One party with 10⁶ records of 50 numbers,
missing values among them: means, variances, missing values and a tree of 128 bins for every column,
from columns of codes in memory to the integers that leave the party. pandas gets a DataFrame in
memory, and numpy 128 bins with the same bounds. Both in one process, in turns, the best of three.
"""

from __future__ import annotations

import json
import sys
from time import perf_counter

import numpy as np
import pandas as pd

from fedpriv.data.tables.columns import MISSING
from fedpriv.federation.party.statistics import party_statistics
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.planning.statistics.statistics_blocks import Block
from fedpriv.privacy.planning.statistics.statistics_design import weigh

RECORDS, COLUMNS, BINS = 1_000_000, 50, 128
LIMIT = 2.0
REPEATS = 3


def main() -> int:
    rng = np.random.default_rng(0)
    codes = rng.uniform(-1, 1, (RECORDS, COLUMNS)).astype(np.float32)
    codes[rng.random(codes.shape) < 0.01] = MISSING
    frame = pd.DataFrame(np.where(codes > 1, np.nan, codes).astype(np.float64))
    items = [
        [
            Block(kind="moments", columns=(column,)),
            Block(kind="tree", columns=(column,), cells=(BINS,)),
            Block(kind="missing", columns=(column,)),
        ]
        for column in range(COLUMNS)
    ]
    design = weigh(items, {}, adjacency=Adjacency.REPLACE_ONE)
    ours, theirs = [], []
    for _ in range(REPEATS):
        start = perf_counter()
        party_statistics(design, codes, [0, RECORDS], categories=[0] * COLUMNS)
        ours.append(perf_counter() - start)
        start = perf_counter()
        frame.describe()
        for column in frame:
            np.histogram(frame[column].dropna(), BINS, range=(-1, 1))
        theirs.append(perf_counter() - start)
    ratio = min(ours) / min(theirs)
    found = {"seconds": min(ours), "peer_seconds": min(theirs), "ratio": ratio, "limit": LIMIT}
    if "--json" in sys.argv:
        print(json.dumps(found))
    else:
        print(
            f"{RECORDS:,} records × {COLUMNS} columns: {min(ours):.2f} s, pandas describe and "
            f"histograms {min(theirs):.2f} s: {ratio:.2f} times as long (at most {LIMIT:g})"
        )
    return int(ratio > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
