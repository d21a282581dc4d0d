"""Quantiles from a noisy binary tree: least-squares consistency, an isotonic CDF, interpolation.

Every node of the tree is measured with the same noise, its root known, or measured apart. Hay,
Rastogi, Miklau and Suciu 2010: the least-squares counts that add up follow in two passes. Upwards a
node is averaged with the sum of its children, by their variances; downwards what a parent and its
children differ by is shared equally. Given its parent, a left child errs by half the parent's error
plus half of D, the difference of the children's upward estimates, which is independent of all else:
so the variance of a rank is exact (`rank_stddev`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

NORMAL_95 = 1.959963984540054


def levels_of(tree: Numbers) -> list[Numbers]:
    """The levels of a tree without its root: 2, 4, … 2^h nodes."""
    levels, first, width = [], 0, 2
    while first < len(tree):
        levels.append(tree[first : first + width])
        first, width = first + width, 2 * width
    return levels


def upward_variances(levels: int, variance: float) -> list[float]:
    """By level, leaves last: the variance of the upward estimate of a node."""
    found = [variance]
    for _ in range(levels - 1):
        # A node with noise of its own, and the sum of two children.
        found.append(1 / (1 / variance + 1 / (2 * found[-1])) if variance else 0.0)
    return found[::-1]


def consistent_leaves(
    tree: Numbers, *, variance: float, root: float, root_variance: float = 0.0
) -> Numbers:
    """The least-squares counts of the leaves; with noise they may be negative.

    Args:
        tree: All nodes below the root, level by level.
        variance: Of the noise on each of them.
        root: The count of the root, known or measured apart.
        root_variance: Of that; 0 if it is known.
    """
    levels = levels_of(tree)
    spread = upward_variances(len(levels), variance)
    upward = [levels[-1]]
    for level, below in zip(levels[-2::-1], spread[:0:-1], strict=True):
        sums = upward[-1][::2] + upward[-1][1::2]
        own = 2 * below / (2 * below + variance) if variance else 0.5
        upward.append(own * level + (1 - own) * sums)
    upward.reverse()
    sums = upward[0].sum(keepdims=True)
    apart = 2 * spread[0]
    share = 1.0 if root_variance == 0 else apart / (apart + root_variance)
    down = share * root + (1 - share) * sums
    for level in upward:
        missing = (down - level[::2] - level[1::2]) / 2
        down = level + np.repeat(missing, 2)
    return np.asarray(down)


def rank_stddev(levels: int, *, variance: float, root_variance: float = 0.0) -> Numbers:
    """The standard deviation of Σ of the first k leaves, k = 0 … 2^h, of `consistent_leaves`.

    With F the error of a prefix that ends in a node, e that of the node: F = β·e + independent, β
    the part of the node that the prefix has.
    """
    spread = upward_variances(levels, variance)
    apart = 2 * spread[0]
    root = 0.0 if not root_variance else root_variance * apart / (root_variance + apart)
    part, rest = np.array([0.0, 1.0]), np.zeros(2)
    for below in spread[::-1]:
        halved = below / 2  # of D/2, D the difference of two children
        left, right = rest + part**2 * halved, rest + (1 - part) ** 2 * halved
        part = np.concatenate([part / 2, (1 + part[1:]) / 2])
        rest = np.concatenate([left, right[1:]])
    return np.asarray(np.sqrt(part**2 * root + rest))


class Ranks:
    """An estimated cumulative distribution over bins of equal width, and its quantiles.

    Args:
        leaves: Consistent counts.
        total: Of all of them.
        stddev: That of the rank at each edge.
        low: The lower end of the first bin.
        high: The upper end of the last.
    """

    def __init__(
        self, leaves: Numbers, *, total: float, stddev: Numbers, low: float, high: float
    ) -> None:
        from scipy.optimize import isotonic_regression

        raw = np.concatenate([[0.0], np.cumsum(leaves)])
        rising = isotonic_regression(raw).x
        self.total = max(total, 0.0)
        self.cdf = np.clip(rising, 0.0, self.total)
        self.cdf[0], self.cdf[-1] = 0.0, self.total
        self.stddev = stddev
        self.edges = np.linspace(low, high, len(raw))

    def at(self, rank: float) -> float:
        """The value with so many below it; the middle of a gap."""
        ranks = self.cdf
        first = int(np.searchsorted(ranks, rank, side="left"))
        last = int(np.searchsorted(ranks, rank, side="right"))
        if last > first:  # some edges have just this rank
            return float((self.edges[first] + self.edges[last - 1]) / 2)
        first = min(max(first, 1), len(ranks) - 1)
        share = (rank - ranks[first - 1]) / (ranks[first] - ranks[first - 1])
        return float(self.edges[first - 1] + share * (self.edges[first] - self.edges[first - 1]))

    def quantile(self, chance: float) -> tuple[float, float, float]:
        """A quantile, and where it may be by the noise: ± 1.96 deviations of its rank."""
        rank = chance * self.total
        value = self.at(rank)
        place = min(int(np.searchsorted(self.edges, value)), len(self.stddev) - 1)
        reach = NORMAL_95 * float(self.stddev[max(place - 1, 0) : place + 1].max())
        ends = [self.at(min(max(rank + sign * reach, 0.0), self.total)) for sign in (-1, 1)]
        return value, min(ends[0], value), max(ends[1], value)

    def histogram(self, bars: int) -> tuple[Numbers, Numbers]:
        """Edges and counts of so many bars, or as many as there are bins; they add up."""
        count = min(bars, len(self.edges) - 1)
        chosen = np.linspace(0, len(self.edges) - 1, count + 1).astype(int)
        return self.edges[chosen], np.diff(self.cdf[chosen])
