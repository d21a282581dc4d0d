"""Real answers as integers of a ring: fixed point, its rounding, and fast exact sums.

Start with `fixed_point`.
"""
