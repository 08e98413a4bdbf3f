"""A driver of its own for tests: writes rows by the sink, reads them by the source, and says what it has found.

python -m tests.pipeline.written_and_read OPTIONS TOPIC ROWS DIRECTORY

OPTIONS is the name of a file: JSON with the options that begin with `kafka.`. DIRECTORY is the broker's log directory, which is read as
`barnabas-log`, too.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

import barnabas.spark


def main(options_file: str, topic: str, rows_count: str, directory: str) -> int:
    barnabas.spark.prepare()
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.log.level", "ERROR")
    spark = builder.config("spark.sql.shuffle.partitions", "2").config("spark.driver.host", "127.0.0.1").getOrCreate()
    brokers = json.loads(Path(options_file).read_text())
    header = "array(struct('h' as key, cast('x' as binary) as value)) as headers"
    rows = spark.range(int(rows_count)).selectExpr("cast(id as string) as key", "cast(id * 2 as string) as value", header)
    rows.write.format("barnabas").options(**brokers).option("topic", topic).mode("append").save()

    reader = spark.read.format("barnabas").options(**brokers).option("subscribe", topic).option("includeHeaders", "true")
    columns = "cast(key as string) as key", "cast(value as string) as value", "topic", "partition", "headers[0].key as header"
    found = reader.load().selectExpr(*columns, "timestampType").collect()
    print("rows", sorted((int(row.key), int(row.value)) for row in found))
    print("places", sorted({(row.topic, row.partition, row.header, row.timestampType) for row in found}))
    segments = spark.read.format("barnabas-log").option("subscribe", topic).option("readTo", "logEnd").load(directory)
    print("files", sorted((int(row.key), int(row.value)) for row in segments.selectExpr(*columns[:2]).collect()))
    audit = spark.read.format("barnabas-log").option("subscribe", topic).option("audit", "true").load(directory)
    print("audit", audit.columns, audit.collect())
    try:
        spark.read.format("barnabas").options(**brokers).option("subscribe", "missing").load().collect()
    except Exception as error:
        print("refusal", " ".join(str(error).split()))
    source = spark.readStream.format("barnabas").options(**brokers).option("subscribe", topic)
    sink = source.load().select("key", "value").writeStream.format("barnabas").options(**brokers).option("topic", topic)
    with tempfile.TemporaryDirectory() as checkpoint:
        stream = sink.option("id", "write-stream").option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        stream.awaitTermination()
        stream.explain(extended=True)  # the plan of a stream has the options of its sink: it must show none that is secret
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
