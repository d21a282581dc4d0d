"""The Python interface: what `import fedpriv` offers, for notebooks and scripts.

Start with `running` (`fedpriv.run`, `fedpriv.compare`), then `result` and `fitted_model`, which it
returns (a comparison is `fedpriv.simulations.compare.comparison`); `accounting` is `account` and
`calibrate`. The command line uses the same functions.
"""
