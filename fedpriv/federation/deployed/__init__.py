"""A deployed party: policy, refusals, ledger and journal, on a disk of its own.

May import `fedpriv.federation.party`. Start with `signed` (whom it hears), then `party` (the order
of an answer, each step durable before the next), `guard` (the policy's rules on run, query and
cost; `party`, `host` and `signed` add their own), `policy` (``party.toml``) and `journal` (what it
must not forget); `stated_plan` and `paying` are for runs whose plan is signed beforehand. A rule of
few lines (`asked`, `one_draw`, `variates`) has a file, too: one module more than elsewhere. What
comes after a run: `errands` (it is cancelled, its model is handed over), and in `statements` when a
party signs one, and whether a signed one holds.
"""
