"""The Java process of Spark's driver. Its stderr passes through a filter, and files that Spark leaves behind are removed at its end.

The filter removes one line, INCUBATOR_WARNING. `open_session` starts the process, `barnabas pipeline` ends it with its job.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from pathlib import Path

from py4j.java_gateway import JavaGateway
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

# Spark's launcher adds this module, and Java has no option to suppress its warning.
INCUBATOR_WARNING = b"WARNING: Using incubator modules: jdk.incubator.vector"
# Spark 4.0.0 makes its folder for the artifacts of Spark Connect here instead of in the temporary directory, which 4.0.1 mends
# (SPARK-52396). At its end Java removes the folder in it, but not this one.
ARTIFACTS = "artifacts"
END_TIMEOUT_S = 20.0
STDERR = 2


class Driver:
    """One Java process, or none if pyspark has one already, as in a test with a session and under spark-submit."""

    def __init__(self) -> None:
        self._artifacts = Path.cwd() / ARTIFACTS
        self._had_artifacts = self._artifacts.exists()
        self._gateway: JavaGateway | None = None
        self._reader: threading.Thread | None = None

    def start(self, conf: SparkConf) -> None:
        """Starts Java and a SparkContext in it, which sessions then share. Raises pyspark's exceptions, after all of Java's stderr."""
        if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
            return
        read_end, write_end = os.pipe()
        self._reader = threading.Thread(target=_pass_on, args=(read_end,), name="driver-stderr", daemon=True)
        self._reader.start()
        try:
            self._gateway = launch_gateway(conf, {"stderr": write_end})  # type: ignore[no-untyped-call]
        except BaseException:
            os.close(write_end)
            self._reader.join(END_TIMEOUT_S)
            raise
        os.close(write_end)
        SparkContext(conf=conf, gateway=self._gateway)

    def end(self) -> None:
        """Ends the Java process that `start` started, and waits for it. Sessions in it must have been stopped."""
        if self._gateway is None or self._reader is None:
            return
        process: subprocess.Popen[bytes] = self._gateway.proc
        assert process.stdin is not None, "launch_gateway gives it a pipe, whose end ends it"
        self._gateway.shutdown()
        process.stdin.close()
        SparkContext._gateway = SparkContext._jvm = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_TIMEOUT_S)
        self._reader.join(END_TIMEOUT_S)
        if not self._had_artifacts:
            # The folder is not empty if another job of the same directory still runs, and missing if Spark made none.
            with contextlib.suppress(OSError):
                self._artifacts.rmdir()


def _pass_on(read_end: int) -> None:
    """Copies Java's stderr to this process's stderr, line by line, until Java has ended."""
    with os.fdopen(read_end, "rb") as pipe, open(STDERR, "wb", buffering=0, closefd=False) as stderr:
        for line in pipe:
            if line.strip() != INCUBATOR_WARNING:
                with contextlib.suppress(BrokenPipeError):  # no reader is left; continue, so that a full pipe does not block Java
                    stderr.write(line)
