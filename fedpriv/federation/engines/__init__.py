"""Engines: what turns a query into a sum, in one process or over Flower's grid.

`vectorized` computes all parties at once, in `chunks`; `sharded` in worker processes that have a
`shard` each, by `ray_session`. What they share is in `ideal` and `question`. `local` calls the real
ClientApp in this process; `grid` is for Flower nodes, on Ray or deployed, with `courier` for the
messages and `seals` for signatures.
Drop-outs and faults are injected by `dropouts`, `faults` and `faulty_grid`. Start with
`vectorized`. Engines share their parts, and so stand in one place: a few modules more than
elsewhere.
"""
