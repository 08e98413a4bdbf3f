"""Apache Flink for the tests: its jars, and a copying job in a MiniCluster (java/flink)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.support.json_program import JsonProgram
from tests.support.jvm import programs_jar
from tests.support.kafka import JVM_FLAGS, class_path_of

FLINK = "org.apache.flink"
FLINK_VERSION, CONNECTOR_VERSION = "2.2.1", "5.0.0-2.2"
JARS = (
    *((FLINK, artifact, FLINK_VERSION) for artifact in ("flink-streaming-java", "flink-clients", "flink-connector-base")),
    (FLINK, "flink-connector-kafka", CONNECTOR_VERSION),
    ("org.slf4j", "slf4j-simple", "1.7.36"),
)
LOG = "-Dorg.slf4j.simpleLogger."
FLINK_JVM_FLAGS = (*JVM_FLAGS, "-Xmx512m", "--add-opens=java.base/java.util=ALL-UNNAMED", f"{LOG}showDateTime=true")


def flink_path() -> str:
    """The class path with the compiled job. Ends the test without Java or Maven."""
    found = class_path_of(f"flink-{FLINK_VERSION}", JARS)
    sources = sorted((Path(__file__).parent / "java/flink").glob("*.java"))
    return f"{found}:{programs_jar('flink-programs', sources, found)}"


class FlinkCopy:
    """Owns a JVM with one job at a time, which copies `input` to `output`. Its commits can be held, all at once."""

    def __init__(self, classes: str, settings: Mapping[str, str], directory: Path) -> None:
        """`settings` are bootstrap, input, output, the prefix of the transactional ids, and naming: INCREMENTING or POOLING. `directory`
        gets the checkpoints."""
        self._settings = {**settings, "checkpoints": (directory / "checkpoints").as_uri()}
        self._directory = directory
        self._classes = classes
        self._start_jvm()

    def _start_jvm(self) -> None:
        self._jvm = JsonProgram(["java", *FLINK_JVM_FLAGS, "-cp", self._classes, "FlinkCopies"])

    def start(self) -> None:
        """A new job, from the last checkpoint that is complete, if there is one."""
        last = self._last_checkpoint()
        self._jvm.ask({"op": "start", **self._settings, "restore": last.as_uri() if last is not None else None})

    def _last_checkpoint(self) -> Path | None:
        complete = (self._directory / "checkpoints").glob("*/chk-*/_metadata")
        return max((path.parent for path in complete), key=lambda path: path.stat().st_mtime_ns, default=None)

    def hold(self) -> None:
        """Commits wait from now on."""
        self._jvm.ask({"op": "hold"})

    def wait_held(self) -> None:
        """Returns when a commit waits: its checkpoint is complete, and its records are flushed."""
        self._jvm.ask({"op": "held"})

    def release(self) -> None:
        self._jvm.ask({"op": "release"})

    def fail(self) -> None:
        """Lets the waiting commit fail: Flink starts the job again by itself."""
        self._jvm.ask({"op": "fail"})

    def cancel(self) -> None:
        """Ends the job as it is."""
        self._jvm.ask({"op": "cancel"})

    def stop(self) -> None:
        """Ends the job with a savepoint, of which everything is committed."""
        self._jvm.ask({"op": "stop", "savepoints": (self._directory / "savepoints").as_uri()})

    def kill(self) -> None:
        """kill -9 of the JVM with all that is in it, and a new one."""
        self._jvm.kill()
        self._start_jvm()

    def log_tail(self) -> str:
        return self._jvm.log_tail()

    def close(self) -> None:
        self._jvm.kill()
