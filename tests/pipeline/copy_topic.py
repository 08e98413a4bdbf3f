"""A driver of its own for tests: copies a topic to another by the source and the sink, until all that there is now is copied and
noted in a group, which is named as the target.

python -m tests.pipeline.copy_topic SERVERS FROM TO CHECKPOINT OFFSETS_PER_TRIGGER
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from pyspark.sql import SparkSession

import barnabas.spark
from barnabas.spark.client.cluster import Cluster
from barnabas.spark.client.fetching import LATEST, Isolation, list_offsets
from barnabas.spark.client.groups import fetch_offsets

DONE = "copied"
NOTED_WITHIN_S = 60.0


def main(servers: str, source: str, target: str, checkpoint: str, per_trigger: str) -> int:
    barnabas.spark.prepare()
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.log.level", "ERROR")
    spark = builder.config("spark.driver.memory", "1g").config("spark.driver.host", "127.0.0.1").getOrCreate()
    brokers = ("kafka.bootstrap.servers", servers)
    reader = spark.readStream.format("barnabas").option(*brokers).option("subscribe", source).option("startingOffsets", "earliest")
    rows = reader.option("group", target).option("maxOffsetsPerTrigger", per_trigger).option("includeHeaders", "true").load()
    writer = rows.select("key", "value", "headers").writeStream.format("barnabas").option(*brokers).option("topic", target)
    query = writer.option("id", target).option("checkpointLocation", checkpoint).trigger(processingTime="0 seconds").start()
    cluster = Cluster(servers)
    topic = cluster.topic(source)
    assert topic is not None
    ends = list_offsets(cluster, source, sorted(topic.leaders), LATEST, Isolation.READ_COMMITTED)
    while not _is_behind(query.lastProgress, source, ends):
        if not query.isActive:
            query.awaitTermination()  # raises why
        time.sleep(0.1)
    ends_by_place = {(source, number): end for number, end in ends.items()}
    deadline_s = time.monotonic() + NOTED_WITHIN_S
    while {place: told.offset for place, told in fetch_offsets(cluster, target, ends_by_place).items()} != ends_by_place:
        assert time.monotonic() < deadline_s, "the group does not have the progress of a stream that has nothing to do"
        time.sleep(0.1)
    query.stop()
    print(DONE, flush=True)
    spark.stop()
    return 0


def _is_behind(progress: Any, source: str, ends: dict[int, int]) -> bool:
    """Whether a batch that has ended reaches the ends."""
    if progress is None:
        return False
    told = json.loads(progress["sources"][0]["endOffset"] or "{}")
    return bool(told) and all(told[source]["offsets"][str(number)] >= end for number, end in ends.items())


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
