"""Backups of a member: its ledger and state together, and a check against going back.

Start with `backup` (what is in one), then `restore`; `newest` decides whether one may be put back,
`archive` is the file.
"""
