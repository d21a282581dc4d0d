"""Store: records that were prepared once, as plain `.npy` files that a process maps from its disk.

`writer` makes the folder, array by array and block by block; `reader` opens it without reading it.
A store holds records in the clear: it is as private as the table that it was made of.
"""
