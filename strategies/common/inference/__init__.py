"""Strategies of `fedpriv fit`: what is released for linear and for logistic regression."""
