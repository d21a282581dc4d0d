"""What strategies share: set-up and options, plans, schedules, server optimisers.

Start with `building` (what every `build` is given), then `plans`, and `noisy_gradients`.
"""
