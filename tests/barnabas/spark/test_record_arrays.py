"""Arrays between Arrow and NumPy: with nulls, slices and nothing in them, and without pandas."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from barnabas.spark.records.arrays import binary_array, fixed_array, nulls_of, numbers_of
from tests.support.process import checkout

WRITE_AND_READ = """
import sys
import numpy as np, pyarrow as pa
import barnabas.spark.data_source
from barnabas.protocol.compression import Compression
from barnabas.spark.records.arrays import binary_array, fixed_array
from barnabas.spark.records.batches import to_record_batch
from barnabas.spark.records.decode import Payload, decode_columns
from barnabas.spark.records.encode import encode_batches
from barnabas.spark.sink.rows import rows_of

partition = fixed_array(np.array([0, 1], np.int32), pa.int32())
batch = pa.RecordBatch.from_arrays([binary_array([b"k", b""]), binary_array([b"v", b"w"]), partition], names=["key", "value", "partition"])
(rows,) = rows_of(batch, "orders")
rows.checksum(), rows.by_partition(3, of_null=0)
(made,) = encode_batches(rows.key, rows.value, None, np.array([1, 2]), batch_bytes=1000, codec=Compression.NONE)
columns = decode_columns([Payload(made.header, made.payload)], start_offset=0, end_offset=2)
assert to_record_batch(columns, "orders", 0, has_headers=True).num_rows == 2
print("pandas" in sys.modules)
"""


def test_a_process_that_writes_and_reads_records_does_not_import_pandas() -> None:
    """It is installed here."""
    pytest.importorskip("pandas")

    outcome = subprocess.run(
        [sys.executable, "-c", WRITE_AND_READ], cwd=checkout(), capture_output=True, text=True, check=False, timeout=60
    )

    assert (outcome.stdout, outcome.stderr) == ("False\n", "")


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), pa.timestamp("us")])
def test_numbers_and_nulls_are_those_of_the_column_of_a_slice_too(kind: pa.DataType) -> None:
    column = pa.array([7, None, -3, None, 2**31 - 1], kind)

    for part in (column, column.slice(1, 3), column.slice(2, 1), column.slice(0, 0), pa.nulls(3, kind)):
        expected = [-1 if number is None else number for number in part.cast(pa.int64() if kind != pa.int32() else kind).to_pylist()]
        assert numbers_of(part, -1).tolist() == expected
        assert nulls_of(part).tolist() == part.is_null().to_pylist()


def test_arrays_are_those_that_pyarrow_makes() -> None:
    is_null = np.array([False, True, False] * 5)
    numbers = np.arange(15)

    assert fixed_array(numbers, pa.int64(), is_null).equals(pa.array(numbers, mask=is_null))
    assert fixed_array(numbers[::2], pa.int64()).equals(pa.array(numbers[::2]))
    assert binary_array([b"", b"a", b"bc"]).equals(pa.array([b"", b"a", b"bc"], pa.binary()))
    assert binary_array(["ü".encode()], pa.string()).equals(pa.array(["ü"]))
    assert binary_array([]).equals(pa.array([], pa.binary()))
