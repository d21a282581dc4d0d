"""Backups of a member: its ledger and state together, and a check against older states.

Start with `backup` (what it contains), then `restore`; `newest` decides whether a backup may be
restored, `archive` is the file.
"""
