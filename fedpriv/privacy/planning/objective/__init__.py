"""Plans of objective perturbation: a random linear term, calibrated by its exact rule.

Start with `objective`; `objective_rules` has the two rules, `objective_fit` a noisy Hessian beside
the minimiser, `unsound_objective` the form without a Jacobian, for study.
"""
