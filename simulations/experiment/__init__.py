"""The experiment file: its keys, its errors, and the data, models and strategies that it names.

Start with `sections` (every key with its default and rule), then `file`. Code of the user's own,
a strategy, model, loss or data set in a file outside of fedpriv, is loaded by `guests`.
"""
