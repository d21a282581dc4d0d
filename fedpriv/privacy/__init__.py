"""Differential privacy: mechanisms, events, accountants, plans, schedules, the budget ledger.

Uses numpy, scipy and dp-accounting; never torch, Flower or a data set. Start with `events` (which
describe what a release costs) and `adjacency`; then `accountants` (events to ε), `planning` (ε
to noise), `mechanisms` and `samplers` (noise), `ledger` (what was spent), `statement` (to sign).
Closed forms are in `gaussian`, `conversions` and `tradeoff`; `rounding` rounds printed numbers up.
A few modules more than elsewhere: formulas and terms that all its packages use.
"""
