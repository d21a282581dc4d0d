"""Cryptographic primitives: keys, masks, Shamir's shares, and the bytes that are signed."""
