"""Metrics of a run: accuracy, loss and others on the test set, and what theory speaks of.

Start with `evaluation`; `scores` has the metrics, from scores and labels. None of them touches
private records in a release.
"""
