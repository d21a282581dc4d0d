"""The subcommands of `fedpriv`, one file for each, however many; `fedpriv deploy` has a folder.

A command parses, calls one function, and prints. Start with `run`; `output` and `progress` do the
printing.
"""
