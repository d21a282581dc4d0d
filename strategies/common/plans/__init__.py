"""Plans of the strategies: the planners of `fedpriv.privacy`, given the task's own numbers.

Start with `plans`, for sums of gradients; `growing` is for growing batches, `clipping_plans` for
adaptive bounds, `minimiser_plans` for noisy minimisers, `second_order_plans` for a matrix and
gradients, `sharing` for noise at the parties.
"""
