"""Differential privacy: mechanisms, events, accountants, plans, schedules, the budget ledger.

Knows numpy, scipy and dp-accounting; never torch, Flower or a data set. Start with `events` (what a
release costs is described by one) and `adjacency`; then `accountants` (events to ε), `planning` (ε
to noise), `mechanisms` and `samplers` (noise), `ledger` (what was spent), `statement` (to sign).
Closed forms are in `gaussian`, `conversions` and `tradeoff`; `rounding` rounds printed numbers up.
A few modules more than elsewhere: those here are formulas and words that all packages in it use.
"""
