"""Trackers: what is told of a run while it goes on, to TensorBoard, MLflow or code of one's own.

Start with `tracker` (what a tracker is, and what it hears of a release), then `named` (those that
the command line knows).
"""
