"""One party: its records, the guard before them, its answers, and its end of the protocol.

Used alike in simulations and, behind a policy and a ledger, in `fedpriv.federation.deployed`. Start
with `party` (a query becomes integers); `host` turns bytes of a request into those of a reply.
"""
