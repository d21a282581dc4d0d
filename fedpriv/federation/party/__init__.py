"""One party: its records, its guard, its answers, and its end of the protocol.

Used in simulations and, with a policy and a ledger, in `fedpriv.federation.deployed`. Start
with `party` (a query becomes integers). `answered` ensures that a release is answered once,
`memory` holds what is kept between messages, and `host` turns the bytes of a request into those of
a reply. Query kinds with much computation (`losses`, `moments`, `statistics`, `training`) have
one file each, hence a few more modules than elsewhere.
"""
