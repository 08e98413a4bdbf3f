"""Batches of a stream in a Delta table, each once, by Delta's transaction identifiers.

Delta notes in its log, in the commit that adds the rows, which application has come to which version. An append with a version that is not
newer does nothing: Spark may run a batch again as often as it likes.

Source: Delta's PROTOCOL.md, Transaction Identifiers; its options txnAppId and txnVersion (idempotent table writes in foreachBatch).
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
"""Of a session that knows Delta tables."""


def append_once(
    rows: DataFrame, path: str, *, application: str, version: int, partition_by: Sequence[str] = (), note: str | None = None
) -> None:
    """As `barnabas.spark.append_to_delta`. `note` is kept with the commit, as its userMetadata. New columns are added to the table."""
    writer = rows.write.format("delta").mode("append").option("txnAppId", application).option("txnVersion", str(version))
    writer = writer.option("mergeSchema", "true")
    if note is not None:
        writer = writer.option("userMetadata", note)
    if partition_by:
        writer = writer.partitionBy(*partition_by)
    writer.save(path)
