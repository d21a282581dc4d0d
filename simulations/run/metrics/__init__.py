"""Metrics of a run: accuracy, loss and others on the test set, and the quantities of theorems.

Start with `evaluation`; `scores` has the metrics, from scores and labels. None of them touches
private records in a release.
"""
