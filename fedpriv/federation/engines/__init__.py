"""Engines: what turns a query into a sum, in one process or over Flower's grid.

`vectorized` computes all parties at once, in `chunks`; `sharded` uses worker processes that have a
`shard` each, with `ray_session`. `ideal` and `question` are shared by both. `local` calls the real
ClientApp in this process; `grid` is for Flower nodes, on Ray or deployed, with `courier` for the
messages and `seals` for signatures.
`dropouts`, `faults` and `faulty_grid` inject drop-outs and faults. Start with `vectorized`. A few
modules more than elsewhere, because engines share their parts.
"""
