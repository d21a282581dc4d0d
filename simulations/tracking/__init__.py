"""Trackers: send the progress of a run to TensorBoard, MLflow or code of your own.

Start with `tracker` (what a tracker is, and what it receives of a release), then `named` (those
that the command line knows).
"""
