"""A ledger on the disk: its SQLite file, chained rows, queries, and the check of all of it.

Start with `chain` (rows and their hashes), then `store`; `verify` finds what was tampered with.
"""
