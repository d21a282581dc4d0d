"""Tiles of matrix products: sums of four rows and some columns, kept in vector registers.

The innermost loop of `add_products`, written in LLVM's intermediate language. From a loop in Python
the compiler makes vector instructions too, but it reads and writes every sum again after a few
rows, and first checks all rows for overlaps. Rows of a step of local training are so short that
this takes longer than the sums.

Every sum goes through its rows in their order, each product fused with its addition where the
processor can: its bits depend neither on the width of a tile nor on what else is in it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

if TYPE_CHECKING:
    from collections.abc import Callable

_HIGH = 4
_FUSED = ("contract",)


def tile_of(lanes: int) -> Callable[..., None]:
    """A function for compiled code that computes four rows of so many columns.

    It takes ``(factors, picked, left, rows, out, j, k, fresh)`` and writes, for n = j … j + 3 and
    ``lanes`` columns from k, Σᵢ factors[picked[n], i]·left[rows[i]] into out[n], or adds it to what
    is there unless ``fresh``. Where ``out`` has no such row, its last is computed once more. All
    columns must exist, and those of ``left`` and ``out`` be contiguous; nothing is checked.
    """

    def tile(  # numba binds arguments by their names
        typingctx: object,
        factors: types.Type,
        picked: types.Type,
        left: types.Type,
        rows: types.Type,
        out: types.Type,
        j: types.Type,
        k: types.Type,
        fresh: types.Type,
    ) -> tuple[object, Callable[..., object]]:
        numbers = (types.int64, types.int64, types.boolean)
        return types.void(factors, picked, left, rows, out, *numbers), partial(_generate, lanes)

    made: Callable[..., None] = intrinsic(tile)
    return made


def _generate(lanes: int, context: Any, builder: Any, signature: Any, values: Any) -> object:
    """Write the code of a tile."""
    kinds, (j, k, fresh) = signature.args[:5], values[5:]
    factors, picked, left, rows, out = (
        (kind, context.make_array(kind)(context, builder, value))
        for kind, value in zip(kinds, values[:5], strict=True)
    )
    number = context.get_data_type(kinds[2].dtype)
    vector, align = ir.VectorType(number, lanes), context.get_abi_sizeof(number)

    def pointer(array: tuple[Any, Any], *place: Any) -> Any:
        return cgutils.get_item_pointer(context, builder, *array, place)

    def columns(array: tuple[Any, Any], row: Any) -> Any:
        return builder.bitcast(pointer(array, row, k), vector.as_pointer())

    def everywhere(value: Any) -> Any:
        nothing = ir.Constant(vector, ir.Undefined)
        first = builder.insert_element(nothing, value, ir.IntType(32)(0))
        places = ir.Constant(ir.VectorType(ir.IntType(32), lanes), None)
        return builder.shuffle_vector(first, nothing, places)

    last = builder.sub(cgutils.unpack_tuple(builder, out[1].shape)[0], j.type(1))
    taken, targets, sums = [], [], []
    for n in range(_HIGH):
        row = builder.add(j, j.type(n))
        row = builder.select(builder.icmp_signed("<", row, last), row, last)
        taken.append(builder.load(pointer(picked, row)))
        targets.append(columns(out, row))
        sums.append(cgutils.alloca_once(builder, vector))  # a register, after compilation
    with builder.if_else(fresh) as (then, otherwise):
        with then:
            for total in sums:
                builder.store(ir.Constant(vector, None), total)
        with otherwise:
            for total, target in zip(sums, targets, strict=True):
                builder.store(builder.load(target, align=align), total)
    with cgutils.for_range(builder, cgutils.unpack_tuple(builder, rows[1].shape)[0]) as loop:
        row = builder.load(columns(left, builder.load(pointer(rows, loop.index))), align=align)
        for total, place in zip(sums, taken, strict=True):
            factor = everywhere(builder.load(pointer(factors, place, loop.index)))
            product = builder.fmul(factor, row, flags=_FUSED)
            builder.store(builder.fadd(builder.load(total), product, flags=_FUSED), total)
    for total, target in zip(sums, targets, strict=True):
        builder.store(builder.load(total), target, align=align)
    return context.get_dummy_value()
