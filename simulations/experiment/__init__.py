"""The experiment file: its keys, its errors, and the data, models and strategies that it names.

Start with `sections` and `model_section` (every key with its default and rule), then `file` (all
tables together). `models` makes the model and loss, `data` the records, `catalogue` knows the
strategies. A user's own model, loss, strategy or data set is loaded by `guests` (found, hashed,
executed by `guest_code`), and a model made of it in `models`.
"""
