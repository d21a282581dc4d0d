"""The dashboard: a local page that follows runs, comparisons and members of a federation.

Start with `activities` (what happens in a directory, as JSON-ready values), then `server` (who may
see it: this machine's loopback, with a secret in the address). It reads, and never writes.
"""
