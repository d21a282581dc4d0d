"""What strategies share: set-up and options, plans, schedules, server optimisers.

Start with `building` (the arguments of every `build`), then `plans`, and `noisy_gradients`. One
module more than elsewhere, because a strategy may use or leave out each part.
"""
