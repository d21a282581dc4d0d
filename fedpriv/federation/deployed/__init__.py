"""A deployed party: policy, refusals, ledger and journal, on its own disk.

May import `fedpriv.federation.party`. Start with `signed` (from whom it accepts messages), then
`party` (the order of an answer, each step durable before the next), `guard` (the policy's rules on
run, query and cost; `party`, `host` and `signed` add their own), `policy` (``party.toml``) and
`journal` (what it must not forget). `stated_plan` and `paying` are for runs whose plan is signed
beforehand. After a run: `errands` (cancel it, hand its model over), and `statements`, which decides
when a party signs a statement, and whether a signed one holds.

A few more modules than elsewhere: an answer passes most of them, so they are read together.
"""
