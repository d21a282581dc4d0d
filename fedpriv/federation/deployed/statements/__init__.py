"""Statements of deployed runs: what they say, when a party signs one, and whether one holds.

Start with `attesting` and `verifying`; both recompute what follows from the rest of a document.
"""
