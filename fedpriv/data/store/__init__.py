"""Store: records prepared once, as plain `.npy` files that a process maps from disk.

`writer` makes the folder, array by array and block by block; `reader` opens it without reading it.
A store contains records in the clear: it is as private as the table from which it was made.
"""
