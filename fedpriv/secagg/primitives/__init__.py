"""Cryptographic primitives: keys, masks, Shamir's shares, and the bytes that are signed.

Start with `codec`: the one binary form of every message. `kinds` has their numbers.
"""
