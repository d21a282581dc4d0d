"""Compiled loops of local training, one party at a time: plain arrays in, plain arrays out.

Start with `steps` (one step of SGD, and the inputs of a loop), then `gram` and `direct` (dense
models) or `sequential` (convolutional ones, by `passes`).
"""
