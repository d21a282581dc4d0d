"""Simulated parties as Flower nodes: in this process, or on Ray.

The federations themselves are in `fedpriv.federation.engines`.
"""
