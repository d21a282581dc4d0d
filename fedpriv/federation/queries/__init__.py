"""Queries: what a server may ask, and how far one record can move the answer.

May import `fedpriv.federation.task`, and nothing else of `federation`. Start with `kinds`; `bounds`
has the sensitivities, `encoding` the bytes.
"""
