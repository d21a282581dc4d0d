"""Cost model of secure aggregation: bytes, exchanges, processor seconds and memory of rounds.

- `setting`: what is asked: how many parties, coordinates, rounds; the graph that follows.
- `attendance`: who is there at every step of a round.
- `traffic`: bytes of every exchange, by the layouts of the messages themselves.
- `work`: how often a party and the server do what takes time.
- `unit_costs`: how long each takes: on this machine, or on the one of the recorded figures.
- `prediction`: all of it together, for parties, server and run. Start there.
"""
