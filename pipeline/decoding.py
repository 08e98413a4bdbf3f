"""Typed columns of an archive, and the records that cannot be decoded: its dead letters.

A batch's dead letters are written apart from its other records, so it is read twice if it has any. Both readings must come to the same:
a record that is decoded in one of them alone would be in both places, or in none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 (its usual name)

from barnabas.spark.formats.decode import PROBLEM, open_decoding, typed_name
from pipeline.errors import PipelineError
from pipeline.transforms import ARCHIVE_COLUMNS, LAYOUT_COLUMNS

RECORDS, DEAD_LETTERS = "records", "dead letters"
Write = Callable[[DataFrame], None]


class Counts(NamedTuple):
    """Of a batch. `records` are all, its dead letters too."""

    records: int
    dead_letters: int


class DecodingError(PipelineError):
    """The same records were decoded otherwise a moment later."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """What is decoded in each batch. `steps` add the typed columns; `left_out` are the raw ones that the archive does not get."""

    steps: Sequence[Callable[[DataFrame], DataFrame]]
    left_out: Sequence[str] = ()

    @staticmethod
    def open(
        formats: Mapping[str, str], *, topics: Sequence[str] = (), drops_raw: bool = False, registry_login: str | None = None
    ) -> Decoding:
        """`formats` has those of the columns key and value. Reads files and asks registries; raises OptionError."""
        topic = topics[0] if len(topics) == 1 else None  # several topics have several subjects
        steps = [
            open_decoding(column, text, into=typed_name(column), topic=topic, registry_login=registry_login)
            for column, text in formats.items()
        ]
        return Decoding(steps, tuple(formats) if drops_raw else ())

    def write(self, rows: DataFrame, write: Write, write_dead_letters: Write) -> Counts:
        """Has the archive's rows written, those with typed columns and then the dead letters, if there are any. Raises DecodingError."""
        decoded = rows
        for step in self.steps:
            decoded = step(decoded)
        counting, counted = _counted(decoded)
        write(counted.where(F.col(PROBLEM).isNull()).drop(PROBLEM, *self.left_out))
        counts = _counts(counting)
        if counts.dead_letters:
            counting, counted = _counted(decoded)
            write_dead_letters(counted.where(F.col(PROBLEM).isNotNull()).select(*LAYOUT_COLUMNS, *ARCHIVE_COLUMNS, PROBLEM))
            if (again := _counts(counting)) != counts:
                raise DecodingError(
                    f"of {counts.records} records {counts.dead_letters} could not be decoded, and a moment later of {again.records} "
                    f"{again.dead_letters}: has the registry changed? Start again"
                )
        return counts


def _counted(decoded: DataFrame) -> tuple[Observation, DataFrame]:
    """Rows that are counted while they are written."""
    counting = Observation()
    return counting, decoded.observe(counting, F.count("*").alias(RECORDS), F.count(PROBLEM).alias(DEAD_LETTERS))


def _counts(counting: Observation) -> Counts:
    """After the rows were written."""
    return Counts(counting.get[RECORDS], counting.get[DEAD_LETTERS])
