"""Engines: they turn a query into a sum, in one process or over Flower's grid.

`vectorized` computes all parties at once, in `chunks`; `sharded` uses worker processes that hold
one `shard` each, through `ray_session`. Both share `ideal` and `question`. `local` calls the real
ClientApp in this process; `grid` is for Flower nodes, on Ray or deployed, with `courier` for the
messages and `seals` for signatures.
`dropouts`, `faults` and `faulty_grid` inject drop-outs and faults. Start with `vectorized`. A few
modules more than elsewhere, because engines share their parts.
"""
