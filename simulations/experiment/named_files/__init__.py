"""Files that an experiment names by path, identified by their hash from the moment it is read.

Start with `guests`: a user's own strategy, model, loss or data set, executed by `guest_code`. The
others are parameters: `start_file` of a pretrained model, `protector_file` of learned protection.
"""
