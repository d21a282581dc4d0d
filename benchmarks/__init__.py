"""Benchmarks: each prints ratios against peers or limits, measured in the same run."""
