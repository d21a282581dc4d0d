"""Attacks on an experiment, for demonstration: what a model, or a message, gives away.

Simulations, with all records in one place. Start with `attack`; `membership` trains shadow models
with the experiment's strategy, with and without its noise; `inversion` reads records off gradients;
`figures` draws both. The attacks themselves are in `fedpriv.audit`.
"""
