"""Benchmarks: each prints ratios against peers or limits, measured in the same run.

One file per benchmark, however many, and what several of them share.
"""
