"""Audits: lower bounds on a privacy loss, from what an attacker can be shown to learn.

Pure statistics and records, no runs: `fedpriv.simulations.audit` repeats an experiment and calls
them. Start with `gaussian_shift` (μ, where the noise is Gaussian), `threshold` (μ and ε, where
nothing is assumed) and `noise_law` (whether the noise is what a plan states); `one_run` counts the
right guesses of a single run, `likelihood_ratio` audits a mechanism alone. `canaries` has the
records that change a release the most, `membership` and `inversion` the attacks. `claims` checks
settings of other systems. May import everything in the library.
"""
