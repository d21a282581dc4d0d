"""Clipping: sums of per-record gradients, each of norm at most C, one rule per kind of model.

Start with `clipped_sum`: it clips the per-record gradients of a network, which it gets from `dense`
and `layers` (an MLP, a CNN), or from `vmap` for anything else that can be differentiated. For
linear models `linear` and `logistic` clip and add in closed form.
"""
