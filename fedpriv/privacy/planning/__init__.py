"""From a budget to noise: plans, calibration, privacy filters, one planner per theorem.

Start with `plan`: sampling, noise and events of a run in one frozen object. `calibration` finds the
noise and proves it by accounting; `filters` is for adaptively chosen noise. The planners,
`gradient`, `output`, `single`, `shares` and those in `objective` and `statistics`, take the
sensitivity as an argument; it is computed in `fedpriv.federation.queries.bounds`. `tuning` makes
one release of many runs. One file per theorem, and so a few more than elsewhere.
"""
