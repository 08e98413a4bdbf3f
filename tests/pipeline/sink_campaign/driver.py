"""The driver of the sink's campaign: a Spark session that starts and stops one query as its standard input says, a line of JSON each.

python -m tests.pipeline.sink_campaign.driver SETTINGS DESCRIPTOR: the settings are JSON: servers, source, target, checkpoint, master, conf

Answers are lines of JSON on the descriptor, which nobody else has: on standard output the JVM's log may come in the middle of a line.
`start` begins the query, `stop` ends it, `state` says whether it runs and why it ended.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any, TextIO

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import barnabas.spark
from tests.pipeline.sink_campaign.gated_sink import GatedSource


class Driver:
    """One query, which may be started again and again in this session."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._query: StreamingQuery | None = None
        barnabas.spark.prepare()
        builder = SparkSession.builder.master(settings["master"])
        for key, value in settings["conf"].items():
            builder = builder.config(key, value)
        self.spark = builder.getOrCreate()
        self.spark.dataSource.register(GatedSource)

    def start(self, *, partitions: int, per_trigger: int, plan: str, options: dict[str, str]) -> None:
        """`partitions`: of a shuffle before the sink, 0 for none. `plan`: the SQL of the value that is written. `options` of the sink."""
        settings = self._settings
        brokers = ("kafka.bootstrap.servers", settings["servers"])
        reader = self.spark.readStream.format("barnabas").option(*brokers).option("subscribe", settings["source"])
        rows: DataFrame = (
            reader.option("startingOffsets", "earliest").option("group", settings["id"]).option("maxOffsetsPerTrigger", per_trigger).load()
        )
        if partitions:
            rows = rows.repartition(partitions, "key")
        writer = rows.selectExpr("key", f"{plan} as value").writeStream.format("gated").option(*brokers)
        writer = writer.options(**options).option("topic", settings["target"]).option("id", settings["id"])
        self._query = writer.option("checkpointLocation", settings["checkpoint"]).trigger(processingTime="0 seconds").start()

    def stop(self) -> None:
        if self._query is not None:
            self._query.stop()

    def kill_task(self, *, attempt: int) -> None:
        """Spark kills the attempt, which is no failure, and runs another."""
        self.spark.sparkContext._jsc.sc().killTaskAttempt(attempt, True, "a twin takes its place")

    def state(self) -> dict[str, Any]:
        query = self._query
        if query is None:
            return {"active": False, "error": None, "committed": None}
        is_active = query.isActive  # before why it has ended, which is there by then
        error = query.exception()
        progress = query.lastProgress
        committed = None if progress is None else json.loads(progress["sources"][0]["endOffset"] or "null")
        return {"active": is_active, "error": None if error is None else str(error), "committed": committed}


def main(text: str, answers: TextIO) -> int:
    driver = Driver(json.loads(text))
    _say(answers, {"number": 0})
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["do"] == "stop":  # it may wait for a process that is held
            threading.Thread(target=_do, args=(driver, asked, answers), daemon=True).start()
        else:
            _do(driver, asked, answers)  # the session is active in this thread alone
    driver.spark.stop()
    return 0


def _do(driver: Driver, asked: dict[str, Any], answers: TextIO) -> None:
    answer: dict[str, Any] = {"number": asked["number"]}
    try:
        answer["result"] = getattr(driver, asked["do"])(**asked["with"])
    except Exception as error:
        answer["failure"] = str(error)
    _say(answers, answer)


_saying = threading.Lock()


def _say(answers: TextIO, answer: dict[str, Any]) -> None:
    with _saying:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    with open(int(sys.argv[2]), "w") as descriptor:
        sys.exit(main(sys.argv[1], descriptor))
