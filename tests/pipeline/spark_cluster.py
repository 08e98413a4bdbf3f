"""A standalone Spark cluster of its own processes on loopback, started from the jars in the pyspark wheel."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyspark

from tests.support.process import free_port, processes_of_session

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
POLL_INTERVAL_S = 0.1
DAEMON_MEMORY = "256m"
# What a driver needs to reach this cluster without asking DNS, and to fit the machine.
CLIENT_SETTINGS = (
    "spark.driver.host=127.0.0.1",
    "spark.driver.bindAddress=127.0.0.1",
    "spark.executor.memory=512m",
    "spark.executor.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.ui.enabled=false",
)


class SparkCluster:
    """One master and its workers, each a process in a session of its own. `url` is what --master takes.

    Each worker has an address of its own, 127.0.0.1 and so on: Spark gives no task a twin on the host that has it already."""

    def __init__(
        self,
        directory: Path,
        *,
        workers: int = 1,
        cores_each: int = 2,
        home: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`home` is the folder of a pyspark, that of the tests unless it is given; `environment` takes the place of this process's."""
        self._home = home or Path(pyspark.__file__).parent
        self._environment = os.environ if environment is None else environment
        self._directory = directory
        self._workers_count = workers
        self._cores_each = cores_each
        self._processes: list[subprocess.Popen[bytes]] = []
        self._master_port = free_port()
        self.url = f"spark://127.0.0.1:{self._master_port}"

    def start(self) -> SparkCluster:
        """Returns once the workers are registered."""
        self._start("master", "127.0.0.1", "org.apache.spark.deploy.master.Master", "--port", str(self._master_port))
        self._wait_for("master", "New state: ALIVE")
        for number in range(self._workers_count):
            options = ("--cores", str(self._cores_each), "--memory", "1g", "--work-dir", str(self._directory / f"work-{number}"))
            self._start(f"worker-{number}", f"127.0.0.{number + 1}", "org.apache.spark.deploy.worker.Worker", *options, self.url)
            self._wait_for(f"worker-{number}", "Successfully registered with master")
        return self

    def executor_processes(self) -> list[int]:
        """The executors that run now, and their Python processes: all of the workers' sessions but the workers."""
        workers = [process.pid for process in self._processes[1:]]
        return [pid for worker in workers for pid in processes_of_session(worker) if pid != worker]

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def executors(self) -> int:
        """How many executors the workers have started so far."""
        return len(list(self._directory.glob("work-*/app-*/*/stderr")))

    def _start(self, name: str, host: str, main_class: str, *arguments: str) -> None:
        line: Sequence[str] = [str(self._home / "bin" / "spark-class"), main_class, "--host", host, "--webui-port", "0", *arguments]
        environment = {**self._environment, "SPARK_HOME": str(self._home), "SPARK_DAEMON_MEMORY": DAEMON_MEMORY, "SPARK_LOCAL_IP": host}
        with (self._directory / f"{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(line, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=self._directory, start_new_session=True)
            )

    def _wait_for(self, name: str, text: str) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        log = self._directory / f"{name}.log"
        while text not in log.read_text():
            assert self._processes[-1].poll() is None, f"Spark's {name} ended: {log.read_text()[-1000:]}"
            assert time.monotonic() < deadline, f"Spark's {name} does not say {text!r}: {log.read_text()[-1000:]}"
            time.sleep(POLL_INTERVAL_S)
