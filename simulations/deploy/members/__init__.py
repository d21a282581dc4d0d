"""Members of a federation: the roster, its epochs, changes of keys, and admitted nodes.

Start with `roster`. `epochs` says which roster a party accepts; `changes` makes the next one at the
coordinator; `bundles` is how a party joins, `rotation`, `new_keys` and `pending` how it changes its
keys; `membership` keeps the SuperLink's nodes those of the roster.
"""
