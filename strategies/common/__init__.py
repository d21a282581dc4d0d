"""What strategies share: set-up and options, plans, schedules, server optimisers.

Start with `building` (what every `build` is given), then `plans`, and `noisy_gradients`. One module
more than elsewhere, since each is a part that a strategy takes or leaves.
"""
