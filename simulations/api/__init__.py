"""The Python interface: what `import fedpriv` offers, for notebooks and scripts.

Start with `running` (`fedpriv.run`, `fedpriv.compare`), then `result`, `comparison` and
`fitted_model`, which they return. The command line stands on the same functions.
"""
