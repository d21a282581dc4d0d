"""Queries: what a server may ask, one file per kind, and how far one record can change the answer.

May import `fedpriv.federation.task`, and nothing else of `federation`. Start with `base`, which
says what every kind must state. `kinds` has the table of kinds, `bounds` the sensitivities,
`encoding` the bytes.
"""
