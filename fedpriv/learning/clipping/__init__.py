"""Clipping: sums of per-record gradients, each of norm at most C, one rule per kind of model.

Start with `clipped_sum`. `linear` and `logistic` are closed forms, `dense` and `layers` go through
networks (an MLP, a CNN), `vmap` through anything else that can be differentiated.
"""
