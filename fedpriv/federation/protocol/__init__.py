"""Secure aggregation on the wire: its level, the messages and their bytes, rounds at the server.

The protocol itself, without any transport, is `fedpriv.secagg`. Start with `level`, then
`wire` (requests, replies, and the table of message kinds) and `masked_rounds`. `instruction`
defines what server and party sign: `fedpriv.federation.engines.seals` signs at the server, and
`fedpriv.federation.deployed.signed` verifies at the party.
"""
