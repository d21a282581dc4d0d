"""A deployed run: submitted to Flower, executed by the server, answered by the parties.

Start with `submission`, then `server` and `client`, its two ends. `seats` knows which party a node
is, `lock` ensures that one process serves a run, `presence` records who was heard, `closed` which
runs are over for good; `public_facts` makes an experiment's problem without a record. `jobs`: what
comes after a run.
"""
