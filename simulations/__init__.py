"""Simulations, the `fedpriv` command line, experiments and reports."""
