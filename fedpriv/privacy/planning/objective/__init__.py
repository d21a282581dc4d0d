"""Plans of objective perturbation: a random linear term, as long as its exact rule says.

Start with `objective`; `objective_rules` has the two rules, `objective_fit` a noisy Hessian beside
the minimiser, `unsound_objective` the form without a Jacobian, for study.
"""
