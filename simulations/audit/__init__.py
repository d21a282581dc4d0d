"""Audits of an experiment: run its strategy many times on two neighbours, and tell them apart.

Start with `audit`, and `result` for its outcome. `neighbours` makes the two tables of a canary,
`search` finds the worst pair, `repetition` runs the strategy unchanged on either, again and
again, `adversaries` has the guesses of those who see a release, and `claim` what a plan guarantees.
`one_run` is the audit of networks, with canaries that are `planted` in their sums. The statistics
are in `fedpriv.audit`.
"""
