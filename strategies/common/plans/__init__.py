"""Plans of the strategies: the planners of `fedpriv.privacy`, with the task's own numbers.

Start with `plans`, for sums of gradients; `growing` is for batches that grow, `clipping_plans` for
bounds that move, `minimiser_plans` for noisy minimisers, `second_order_plans` for a matrix and
gradients, `sharing` for noise at parties.
"""
