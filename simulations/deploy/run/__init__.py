"""A deployed run: handed to Flower, carried out by the server, answered by the parties.

Start with `submission`, then `server` and `client`, its two ends. `seats` knows which party a node
is, `lock` that one process serves a run, `presence` who was heard, `closed` which runs are over for
good; `public_facts` makes an experiment's problem without a record. `jobs`: what comes after a run.
"""
