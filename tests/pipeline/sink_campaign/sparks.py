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
from tests.pipeline.spark_cluster import CLIENT_SETTINGS, SparkCluster
from tests.pipeline.spark_support import CHECKOUT

MODULES = CHECKOUT / "barnabas" / "spark" / "modules"
ATTEMPTS = (1, 4)
"""How often Spark runs a task before it gives up: local[2] once, local[2,4] four times."""
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
"""A driver lives for minutes: the quick compiler halves what its start costs."""
SPECULATION_CONF = {
    "spark.speculation": "true",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.task.duration.threshold": "2s",
    "spark.speculation.efficiency.enabled": "false",
    "spark.python.task.killTimeout": "10s",
}
"""A task that is held has a twin after seconds, also where it is the only one of its stage. It lives on for a while when that has ended."""
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
    "spark.sql.streaming.pollingDelay": "100ms",  # an idle query asks the source for its ends every 10 ms otherwise
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}


class LocalSpark:
    """local[2]: driver, executor and tasks are one JVM and its Python workers."""

    def __init__(
        self, directory: Path, servers: str, gates_port: int, environment: Mapping[str, str], randomness: random.Random,
    ) -> None:  # fmt: skip
        self._randomness = randomness
        self.environment = {
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": f"{CHECKOUT}{os.pathsep}{MODULES}",
            ADDRESS: str(gates_port),
            **environment,
        }
        self.settings = {
            "servers": servers, "source": SOURCE, "target": COPY, "id": SINK, "checkpoint": str(directory / "checkpoint"),
            "conf": {**CONF, "spark.local.dir": str(directory / "spark")},
        }  # fmt: skip

    def start(self) -> None:
        """There is nothing beside the drivers."""

    def stop(self) -> None:
        pass

    def start_driver(self, *, repeats: bool = False) -> tuple[DriverProcess, int]:
        """The driver, which may not be ready yet, and how often it lets Spark run a task: more than once if `repeats`."""
        attempts = ATTEMPTS[-1] if repeats else self._randomness.choice(ATTEMPTS)
        master = "local[2]" if attempts == 1 else f"local[2,{attempts}]"
        return DriverProcess({**self.settings, "master": master}, self.environment), attempts


class ClusterSpark:
    """Two standalone workers of one core: an executor of its own on each, and the driver a process beside them."""

    def __init__(
        self, directory: Path, servers: str, gates_port: int, environment: Mapping[str, str], randomness: random.Random,
    ) -> None:  # fmt: skip
        self._local = LocalSpark(directory, servers, gates_port, environment, randomness)
        folder = directory / "cluster"
        folder.mkdir()
        self._cluster = SparkCluster(folder, workers=2, cores_each=1)
        self._randomness = randomness

    def start(self) -> None:
        self._cluster.start()

    def stop(self) -> None:
        self._cluster.stop()

    def start_driver(self, *, repeats: bool = False) -> tuple[DriverProcess, int]:
        """As LocalSpark's. Where tasks are run again, slow ones get twins too."""
        attempts = ATTEMPTS[-1] if repeats else self._randomness.choice(ATTEMPTS)
        settings, environment = self._local.settings, self._local.environment
        conf = {
            **settings["conf"],
            **dict(setting.split("=", 1) for setting in CLIENT_SETTINGS),
            **{f"spark.executorEnv.{name}": text for name, text in environment.items()},
            **(SPECULATION_CONF if attempts > 1 else {}),
            "spark.task.maxFailures": str(attempts),
            "spark.driver.extraJavaOptions": QUICK_JVM,
        }
        return DriverProcess(
            {**settings, "conf": conf, "master": self._cluster.url}, environment, self._cluster.executor_processes
        ), attempts
