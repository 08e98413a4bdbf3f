"""Apache Kafka for the tests: its jars (by Maven, once per machine), its server and its Java tools.

The server is the reference that proves the tests: `BARNABAS_TEST_SERVER=kafka` points them at it. The tools are Java
clients that the broker must serve. A JVM takes about a second to start, so most tool runs share one (`java_host.py`).
"""

from __future__ import annotations

import functools
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.support.process import ServerProcess, cache_dir, free_port
from tests.support.requirements import require

KAFKA_VERSION = "4.3.1"
JARS = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    ("org.slf4j", "slf4j-simple", "1.7.36"),
)
SHELL_JARS = (("org.apache.kafka", "kafka-shell", KAFKA_VERSION),)
INSTALL_HINT = "install both with: sudo apt-get install -y openjdk-17-jdk-headless maven"
MAVEN_TIMEOUT_S = 600
FORMAT_TIMEOUT_S = 120
VERSION_TIMEOUT_S = 60
# A short-lived tool spends its time in start-up: shared class data and the quick compiler halve it.
TOOL_JVM_FLAGS = ("-Xshare:auto", "-XX:TieredStopAtLevel=1", "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
# A server runs for seconds or minutes, often beside others: little memory, one collector thread, and the quick compiler.
SERVER_JVM_FLAGS = (*TOOL_JVM_FLAGS, "-XX:+UseSerialGC")
# A broker that was killed may register again only when its session has ended, which takes 9 s by default.
SHORT_SESSION = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}


def missing_java(jars_dir: Path | None = None) -> str | None:
    """What keeps the Java tests from running, with the command that cures it; None when nothing does. `jars_dir` is where the jars are
    once they were downloaded, by default Kafka's own."""
    missing = [name for name, command in (("Java 17 (a JDK)", "javac"), ("Maven", "mvn")) if shutil.which(command) is None]
    if "Maven" in missing and (jars_dir or _jars_dir()).is_dir():
        missing.remove("Maven")
    return f"missing: {', '.join(missing)}; {INSTALL_HINT}" if missing else None


def kafka_jars() -> Path:
    """The folder with Kafka's jars, downloaded at the first call on this machine. Ends the test without Java or Maven."""
    require(missing_java())
    target = _jars_dir()
    if not target.is_dir():
        _download_jars(target, JARS)
    return target


def shell_class_path() -> str:
    """What MetadataShell needs, which is no part of Kafka's server; downloaded as `kafka_jars` is."""
    return class_path_of("kafka-shell", SHELL_JARS)


def class_path_of(name: str, jars: Sequence[tuple[str, ...]]) -> str:
    """The class path of these jars and what they need, in a folder of that name; downloaded as `kafka_jars` is. A jar is its group,
    artifact, version and, if it has one, classifier."""
    target = cache_dir() / f"{name}-{KAFKA_VERSION}"
    require(missing_java(target))
    if not target.is_dir():
        _download_jars(target, jars)
    return f"{target}/*"


def class_path() -> str:
    return f"{kafka_jars()}/*"


def java_command(main_class: str, *arguments: str, flags: Sequence[str] = TOOL_JVM_FLAGS) -> list[str]:
    return ["java", *flags, "-cp", class_path(), main_class, *arguments]


def java_tool(main_class: str, *arguments: str, stdin: str = "", timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
    """Runs a tool in a JVM of its own and returns what it printed; the exit status is the caller's to check."""
    return subprocess.run(java_command(main_class, *arguments), input=stdin, capture_output=True, text=True, timeout=timeout, check=False)


def start_java_tool(main_class: str, *arguments: str) -> subprocess.Popen[str]:
    """Starts a tool that runs until it is told to stop; the caller owns the process."""
    return subprocess.Popen(
        java_command(main_class, *arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@functools.cache
def with_kept_classes() -> tuple[str, ...]:
    """The flag by which a server's JVM takes Kafka's classes as an earlier one has left them: it starts with half the work, 1.6 s of a CPU
    instead of 3.0. Made once per machine, Java and version of Kafka; where that fails, a server starts as it would without."""
    scratch_parent = kafka_jars().parent
    java = subprocess.run(["java", "-version"], capture_output=True, timeout=VERSION_TIMEOUT_S, check=True)
    kept = cache_dir() / f"kafka-{KAFKA_VERSION}-classes-{hashlib.sha256(java.stderr).hexdigest()[:12]}.jsa"
    if not kept.exists():
        with tempfile.TemporaryDirectory(dir=scratch_parent) as scratch:
            server = KafkaServer(Path(scratch) / "server")
            made = Path(scratch) / "classes.jsa"
            server.class_flags = (f"-XX:ArchiveClassesAtExit={made}",)
            server.start()
            server.stop()
            if made.exists():
                made.rename(kept)
    return (f"-XX:SharedArchiveFile={kept}",) if kept.exists() else ()


def java_source(file_name: str) -> str:
    """A program of tests/support/java, which `java` compiles as it starts it."""
    return str(Path(__file__).resolve().parent / "java" / file_name)


def java_program(file_name: str) -> list[str]:
    """The command that runs it."""
    return ["java", *TOOL_JVM_FLAGS, "-cp", class_path(), java_source(file_name)]


def _jars_dir() -> Path:
    return cache_dir() / f"kafka-{KAFKA_VERSION}"


def _download_jars(target: Path, jars: Sequence[tuple[str, ...]]) -> None:
    """Downloads beside the target and renames: a folder that exists is complete, however many runs race for it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        pom = Path(scratch) / "pom.xml"
        pom.write_text(_pom(jars))
        subprocess.run(
            ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", "-DoutputDirectory=lib", "-DincludeScope=runtime"],
            check=True,
            timeout=MAVEN_TIMEOUT_S,
        )
        try:
            (Path(scratch) / "lib").rename(target)
        except OSError:
            if not target.is_dir():
                raise


def _pom(jars: Sequence[tuple[str, ...]]) -> str:
    names = ("groupId", "artifactId", "version", "classifier")
    dependencies = "".join(
        f"<dependency>{''.join(f'<{name}>{value}</{name}>' for name, value in zip(names, jar, strict=False))}</dependency>" for jar in jars
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>barnabas.tests</groupId><artifactId>kafka-jars</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


class KafkaServer(ServerProcess):
    """Apache Kafka, broker and controller in one process, formatted at its first start."""

    name = "kafka"
    cluster_id = "MkU3OEVBNTcwNTJENDM2Qk"
    format_arguments: Sequence[str] = ()
    """Further words of kafka-storage's `format`: the features of the cluster, or how its quorum begins."""
    class_flags: Sequence[str] | None = None
    """Where the JVM has its classes from, for one that does not take those that are kept."""

    def command(self) -> list[str]:
        properties = self.directory / "server.properties"
        if not properties.exists():
            self._format(properties)
        flags = with_kept_classes() if self.class_flags is None else self.class_flags
        return java_command("kafka.Kafka", str(properties), flags=(*SERVER_JVM_FLAGS, *flags))

    def _format(self, properties: Path) -> None:
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.data_dir),
            **self.settings,
        }
        if "listeners" not in settings:  # the only node of its cluster
            controller_port = free_port(self.host)
            settings["controller.quorum.voters"] = f"1@{self.host}:{controller_port}"
            settings["listeners"] = f"PLAINTEXT://{self.host}:{self.port},CONTROLLER://{self.host}:{controller_port}"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        words = ("format", "-t", self.cluster_id, "-c", str(properties), *self.format_arguments)
        flags = with_kept_classes() if self.class_flags is None else ()
        storage_tool = java_command("kafka.tools.StorageTool", *words, flags=(*SERVER_JVM_FLAGS, *flags))
        subprocess.run(storage_tool, check=True, timeout=FORMAT_TIMEOUT_S, stdout=subprocess.DEVNULL)
