"""A ledger on the disk: its SQLite file, chained rows, queries, and the check of all of it."""
