"""Storage of a ledger: its SQLite file, chained rows, queries, and verification.

Start with `chain` (rows and their hashes), then `store`; `verify` detects tampering.
"""
