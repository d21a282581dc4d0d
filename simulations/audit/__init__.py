"""Audits of an experiment: its strategy, run many times on two neighbours, told apart or not.

Start with `audit`, and `result` for what it finds. `neighbours` makes the two tables of a canary,
`search` finds the worst of them, `repetition` runs the strategy as it is on either, again and
again, `adversaries` has what whoever sees a release makes of it, and `claim` what a plan promises.
`one_run` is the audit of networks, with canaries that are `planted` in their sums. The statistics
are in `fedpriv.audit`.
"""
