"""Plans of private tuning: the best of a random number of trials, as one release.

Start with `trials`, what one trial may cost; `tuning` plans all of them.
"""
