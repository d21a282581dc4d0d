"""The interface between a strategy and the parties: a query goes out, a sum comes in.

- `task`, `federation`: the public facts of a problem; the one interface, `Federation.sum`.
- `queries`: what may be asked, how it is encoded, how far a record can change an answer.
- `party`: one party: its records, its guard, its answers, its end of the protocol.
- `deployed`: a party with a policy, a ledger, a journal and a disk.
- `protocol`: secure-aggregation level, messages on the wire, masked rounds at the server.
- `engines`: vectorized, sharded, local, grid (Ray and deployed).
- `strategy`: what every strategy is.
- `cost`: what secure aggregation costs, predicted.

May import `privacy`, `learning`, `secagg` and `data`. Start with `federation`, then `queries`.
"""
