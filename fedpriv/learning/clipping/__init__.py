"""Clipping: sums of per-record gradients, each of norm at most C, one rule per kind of model.

Start with `clipped_sum`. It clips the per-record gradients of a network, which come from `dense`
and `layers` (an MLP, a CNN), or from `vmap` for any other differentiable model. For linear models,
`linear` and `logistic` clip and sum in closed form.
"""
