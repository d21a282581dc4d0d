"""Cost model of secure aggregation: bytes, exchanges, processor seconds and memory of rounds.

- `setting`: the input: how many parties, coordinates, rounds; the graph that follows.
- `attendance`: who is present at every step of a round.
- `traffic`: bytes of every exchange, by the layouts of the messages themselves.
- `work`: how often a party and the server do each costly operation.
- `unit_costs`: how long each operation takes, on this machine or on that of the recorded figures.
- `prediction`: all of it together, for parties, server and run. Start there.
"""
