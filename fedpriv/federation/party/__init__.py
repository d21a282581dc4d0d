"""One party: its records, the guard before them, its answers, and its end of the protocol.

Used alike in simulations and, behind a policy and a ledger, in `fedpriv.federation.deployed`. Start
with `party` (a query becomes integers); `answered` has the rule that a release is answered once,
`memory` what is kept between messages, and `host` turns the bytes of a request into a reply's. How
some kinds of query are computed (`losses`, `moments`, `statistics`, `training`) has a file each,
one module more than elsewhere.
"""
