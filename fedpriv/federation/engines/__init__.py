"""Engines: what turns a query into a sum, in one process or over Flower's grid.

`vectorized` computes all parties at once; `local` calls the real ClientApp in this process; `grid`
is for Flower nodes, on Ray or deployed, with `courier` for the messages and `seals` for signatures.
Drop-outs and faults are injected by `dropouts`, `faults` and `faulty_grid`. Start with
`vectorized`.
"""
