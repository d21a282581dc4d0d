"""One party: its records, its guard, its answers, and its end of the protocol.

Used in simulations and, with a policy and a ledger, in `fedpriv.federation.deployed`. Start
with `party` (a query becomes integers). `answered` ensures that a release is answered once,
`memory` is what is kept between messages, and `host` turns the bytes of a request into a reply's.
Kinds of query with much to compute (`losses`, `moments`, `statistics`, `training`) have one file
each, hence a few modules more than elsewhere.
"""
