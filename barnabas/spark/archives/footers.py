"""What the footers of Parquet files say about their records, read by pyarrow without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

THREADS_COUNT = 8
"""A footer is a few small reads, which wait for a disk more than they compute."""


class Contents(NamedTuple):
    """`ends` has by partition the offset behind the file's last record."""

    records: int
    ends: Mapping[int, int]


class Damage(NamedTuple):
    """Why a file cannot be read."""

    path: str
    reason: str


def read_all(paths: Iterable[str]) -> Iterator[tuple[str, Contents | Damage]]:
    """The contents of each file, in order. A file that has gone since it was listed is left out: a job has replaced it."""
    with ThreadPoolExecutor(THREADS_COUNT) as threads:
        for path, found in threads.map(lambda path: (path, _read(path)), paths):
            if found is not None:
                yield path, found


def _read(path: str) -> Contents | Damage | None:
    try:
        with pq.ParquetFile(path) as file:
            return Contents(file.metadata.num_rows, _ends(file))
    except FileNotFoundError:
        return None
    except (OSError, pa.ArrowException, KeyError) as error:
        return Damage(path, str(error).splitlines()[0])


def _ends(file: pq.ParquetFile) -> dict[int, int]:
    """From the statistics of each row group that has one partition; the two columns of others are read."""
    ends: dict[int, int] = {}
    columns = {file.metadata.schema.column(index).path: index for index in range(file.metadata.num_columns)}
    partition_index, offset_index = columns["partition"], columns["offset"]
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        partition, offset = group.column(partition_index).statistics, group.column(offset_index).statistics
        if partition is not None and offset is not None and partition.has_min_max and offset.has_min_max and partition.min == partition.max:
            found = {int(partition.min): int(offset.max)}
        else:
            table = file.read_row_group(number, ["partition", "offset"])
            last = table.group_by("partition").aggregate([("offset", "max")])
            found = dict(zip(last["partition"].to_pylist(), last["offset_max"].to_pylist(), strict=True))
        for key, value in found.items():
            ends[key] = max(ends.get(key, 0), value + 1)
    return ends
