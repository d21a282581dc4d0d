"""`fedpriv deploy`: the life of a federation, one file for each kind of command.

`founding` (init, join, bundle, renew; and the command group), `roster` (add, accept, expel,
rotate), `members` (server, party, stop), `run`, `runs` (cancel, attest, handover), `evaluate`,
`status` (and recover), `backup` (and restore).
"""
