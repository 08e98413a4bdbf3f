"""Archives that tests make without Spark: files as `barnabas pipeline archive` writes them, and a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("partition", pa.int32()), ("offset", pa.int64()), ("timestamp", pa.timestamp("us", tz="UTC")), ("key", pa.binary()),
        ("value", pa.binary()), ("headers", HEADERS),
    ]
)  # fmt: skip
DAY = "2026-03-01"
TIME_MS = 1_772_323_200_000
"""When DAY begins."""


def write_file(archive: Path, topic: str, positions: Sequence[tuple[int, int]], *, batch: int = 0, number: int = 0, day: str = DAY) -> Path:
    """A record for each (partition, offset): its value says which it is."""
    folder = archive / f"topic={topic}" / f"day={day}"
    folder.mkdir(parents=True, exist_ok=True)
    same = {"timestamp": TIME_MS * 1000, "key": None, "headers": None}
    rows = [{**same, "partition": partition, "offset": offset, "value": value_of(partition, offset)} for partition, offset in positions]
    path = folder / f"batch-{batch:012d}-0123456789ab-{number:08d}.parquet"
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), path)
    return path


def value_of(partition: int, offset: int) -> bytes:
    return b"%d:%d" % (partition, offset)


def write_checkpoint(archive: Path, batch: int, ends: Mapping[str, Mapping[str, int]], planned_ms: int = TIME_MS) -> None:
    """A batch that is planned up to `ends` and done."""
    for log, text in (("offsets", f'v1\n{{"batchTimestampMs":{planned_ms}}}\n{json.dumps(ends)}'), ("commits", "v1\n{}")):
        path = archive / "_checkpoint" / log / str(batch)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
