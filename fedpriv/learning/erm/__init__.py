"""Empirical risk minimisation: certified minimisers of strongly convex problems of many parties.

Start with `problem` (what is solved) and `sensitivity` (2G/(nλ), how far a record moves the
minimiser), then `solver`; `certificate` proves a bound on the gradient norm that includes its own
rounding.
"""
