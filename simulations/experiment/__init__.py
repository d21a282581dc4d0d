"""The experiment file: its keys, its errors, and the data, models and strategies that it names.

Start with `sections` and `model_section` (every key with its default and rule), then `file` (all
tables together). `models` makes the model and loss, `records` the records, `catalogue` knows the
strategies. A user's own model, loss, strategy or data set is found, hashed and executed in
`named_files`, and turned into a model in `models`.
"""
