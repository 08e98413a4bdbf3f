"""How the campaign's drivers are started: in one process, or on a standalone cluster."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.pipeline.sink_campaign.driver_process import DriverProcess
from tests.pipeline.sink_campaign.gates import ADDRESS
from tests.pipeline.sink_campaign.world import COPY, SINK, SOURCE
from tests.pipeline.spark_support import CHECKOUT

MODULES = CHECKOUT / "barnabas" / "spark" / "modules"
ATTEMPTS = (1, 4)
"""How often Spark runs a task before it gives up: local[2] once, local[2,4] four times."""
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
"""A driver lives for minutes: the quick compiler halves what its start costs."""
CONF = {
    "spark.driver.extraJavaOptions": QUICK_JVM,
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.python.task.killTimeout": "1s",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}


class LocalSpark:
    """local[2]: driver, executor and tasks are one JVM and its Python workers."""

    def __init__(
        self, directory: Path, servers: str, gates_port: int, environment: Mapping[str, str], randomness: random.Random,
    ) -> None:  # fmt: skip
        self._randomness = randomness
        self._environment = {
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": f"{CHECKOUT}{os.pathsep}{MODULES}",
            ADDRESS: str(gates_port),
            **environment,
        }
        self.settings = {
            "servers": servers, "source": SOURCE, "target": COPY, "id": SINK, "checkpoint": str(directory / "checkpoint"),
            "conf": {**CONF, "spark.local.dir": str(directory / "spark")},
        }  # fmt: skip

    def start_driver(self) -> tuple[DriverProcess, int]:
        """The driver, which may not be ready yet, and how often it lets Spark run a task."""
        attempts = self._randomness.choice(ATTEMPTS)
        master = "local[2]" if attempts == 1 else f"local[2,{attempts}]"
        return DriverProcess({**self.settings, "master": master}, self._environment), attempts
