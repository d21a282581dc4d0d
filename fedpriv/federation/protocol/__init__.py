"""Secure aggregation on the wire: its level, the messages and their bytes, rounds at the server.

The protocol itself, without messages to anyone, is `fedpriv.secagg`. Start with `level`; what is
signed on the way is in `instruction`.
"""
