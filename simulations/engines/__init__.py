"""Simulated parties as Flower nodes: in this process, or on Ray.

The federations themselves are in `fedpriv.federation.engines`. Start with `parties`; `ray` runs
them on Flower's simulation runtime.
"""
