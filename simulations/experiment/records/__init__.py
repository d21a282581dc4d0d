"""The records of an experiment: loaded, split, assigned to parties, or mapped from a store.

Start with `data`, which goes from the section `[data]` to records; `holding` says who holds which,
`splits` which are for testing. `own_data` calls a function of the user's own, `stand_in` puts other
records in their place, for audits. Records larger than memory are prepared once by `sharding`, and
opened by `stores`.
"""
