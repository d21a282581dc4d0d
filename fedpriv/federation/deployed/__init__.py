"""A deployed party: policy, refusals, ledger and journal, on a disk of its own.

May import `fedpriv.federation.party`. Start with `party` (the order of an answer, each step durable
before the next), then `guard` (every rule by which it refuses), `policy` (``party.toml``) and
`signed` (whom it hears).
"""
