"""Attacks on an experiment, for demonstration: what a model, or a message, reveals.

Simulations, with all records in one place. Start with `attack`; `membership` trains shadow models
with the experiment's strategy, with and without its noise; `inversion` reconstructs records from
gradients; `figures` draws both. The attacks themselves are in `fedpriv.audit`.
"""
