"""The experiment file: its keys, its errors, and the data, models and strategies that it names.

Start with `sections` (every key with its default and rule), then `file`. `models` makes the model
and loss, `data` the records, `catalogue` knows the strategies; code of a user's own is found and
hashed by `guests`, and executed by `guest_code`.
"""
