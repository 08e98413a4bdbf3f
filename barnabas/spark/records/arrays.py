"""Arrow arrays and NumPy's, from one to the other without pandas. pa.array, pa.scalar and to_numpy import it, if it is installed, to ask
whether they were given one of its objects; that takes a third of a second, in each of Spark's Python processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def fixed_array(values: NDArray[Any], type: pa.DataType, is_null: NDArray[np.bool_] | None = None) -> pa.Array:
    """An array over the memory of `values`, whose items are as wide as those of `type`."""
    validity = None if is_null is None else pa.py_buffer(np.packbits(~is_null, bitorder="little"))
    return pa.Array.from_buffers(type, len(values), [validity, pa.py_buffer(np.ascontiguousarray(values))])


def binary_array(values: Sequence[bytes], type: pa.DataType | None = None) -> pa.Array:
    """`type` is binary, or string for what is UTF-8."""
    ends = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(value) for value in values], out=ends[1:])
    return pa.Array.from_buffers(type or pa.binary(), len(values), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(values))])


def nulls_of(column: pa.Array) -> NDArray[np.bool_]:
    """Where it is null."""
    validity = column.buffers()[0]
    if validity is None:
        return np.zeros(len(column), np.bool_)
    bits = np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little")
    found: NDArray[np.bool_] = bits[column.offset : column.offset + len(column)] == 0
    return found


def numbers_of(column: pa.Array, when_null: int) -> NDArray[np.int64]:
    """The values of a column of int32, int64 or another type of 64 bits, in an array of their own."""
    data = column.buffers()[1]
    if data is None or not len(column):
        return np.full(len(column), when_null, np.int64)
    kind = np.int32 if column.type.bit_width == 32 else np.int64
    values = np.frombuffer(data, kind)[column.offset : column.offset + len(column)].astype(np.int64)
    if column.null_count:
        values[nulls_of(column)] = when_null
    return values
