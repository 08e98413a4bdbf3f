"""The names in an archive. What each is for is described in pipeline/publication.py.

    topic=T/day=YYYY-MM-DD/batch-<id>-<plan>-<number>.parquet   records, from a batch
    topic=T/day=YYYY-MM-DD/compact-<id>-<number>.parquet        records, from files of older batches
    _dead_letters/topic=T/day=…/batch-<id>-<plan>-<number>.parquet   records that could not be decoded, with the reason

Readers skip names that begin with `_`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

STAGING = "_staging"
CHECKPOINT = "_checkpoint"
DEAD_LETTERS = "_dead_letters"
COMPACTION = "_compaction"
PLAN = "plan"
"""In a folder of COMPACTION: which files are to be moved."""
DELTA_LOG = "_delta_log"
"""In an archive that is a Delta table."""
DATA_PATTERN = "topic=*/day=*/*.parquet"
NO_BATCH = -1
_DATA_NAME = re.compile(r"/topic=([^/]+)/day=([^/]+)/(?:batch-(\d+)-[0-9a-f]+-\d+|compact-[0-9a-f]+-\d+)\.parquet$")
_BATCH_NAME = re.compile(r"batch-(\d+)-[0-9a-f]+$")


class DataFile(NamedTuple):
    """What the path of a file with records says. `batch` is None for a file that `compact` has made."""

    topic: str
    day: str
    batch: int | None


def data_file_of(path: str) -> DataFile | None:
    """None for a file that no job of ours has made."""
    found = _DATA_NAME.search(path)
    if found is None:
        return None
    return DataFile(unescaped(found[1]), found[2], None if found[3] is None else int(found[3]))


def topic_of_folder(path: str) -> str:
    """The topic of …/topic=T/day=D."""
    return unescaped(path.rsplit("/", 2)[1].removeprefix("topic="))


def batch_of_decision(name: str) -> int | None:
    """The batch that is decided by a file of this name in STAGING. None for another name."""
    found = _BATCH_NAME.fullmatch(name)
    return None if found is None else int(found[1])


def unescaped(text: str) -> str:
    """A value in a folder's name: Spark writes some characters as % and two digits (ExternalCatalogUtils.escapePathName)."""
    return re.sub(r"%([0-9A-Fa-f]{2})", lambda found: chr(int(found[1], 16)), text)
