"""Apache Kafka for the tests: its jars (by Maven, once per machine), its server and its Java tools.

The server is the reference that proves the tests: `BARNABAS_TEST_SERVER=kafka` points them at it. The tools are Java
clients that the broker must serve. A JVM takes about a second to start, so most tool runs share one (`java_host.py`).
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.support.json_program import JsonProgram, to_text
from tests.support.jvm import KeptClasses, make_once, programs_jar
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
# A JVM of the tests spends much of its time in start-up, and runs beside others: the quick compiler, one collector thread, little memory.
JVM_FLAGS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
PROGRAMS = (
    "AckedProducer", "Acls", "ConfigDefs", "Consumers", "EndToEndAuthorization", "FormattedKafka", "JavaHost", "Quotas", "SecurityAnswers",
    "TransactionalProducers",
)  # fmt: skip
"""Of tests/support/java, those that need nothing but Kafka's jars."""
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


@functools.cache
def programs_path() -> str:
    """Kafka's jars, and the tests' programs that need no others."""
    sources = [Path(java_source(f"{name}.java")) for name in PROGRAMS]
    return f"{class_path()}:{programs_jar('kafka-programs', sources, class_path())}"


def java_command(main_class: str, *arguments: str, flags: Sequence[str] = ()) -> list[str]:
    """The command that runs a tool of Kafka's, or a program of the tests, on the classes that are kept of such."""
    return ["java", *JVM_FLAGS, *kept_classes()[1].flags(), *flags, "-cp", programs_path(), main_class, *arguments]


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
def kept_classes() -> tuple[KeptClasses, KeptClasses]:
    """Those of servers, and those of clients and tools: a JVM starts with half the work, a server with 1.6 s of a CPU instead of 3.0. Made
    once per machine, Java, version of Kafka and of the programs."""
    kept = [KeptClasses(f"kafka-{KAFKA_VERSION}-{name}", programs_path()) for name in ("server", "client")]
    make_once("kafka-classes", lambda: all(each.path.exists() for each in kept), lambda: _keep_classes(*kept))
    return kept[0], kept[1]


def _keep_classes(of_server: KeptClasses, of_client: KeptClasses) -> None:
    """A server and its clients do what most of the tests' do, and leave their classes."""
    with tempfile.TemporaryDirectory(dir=cache_dir()) as scratch:
        server = KafkaServer(Path(scratch) / "server")
        server.class_flags = of_server.flags_to_leave()
        server.start()
        client = JsonProgram(["java", *JVM_FLAGS, *of_client.flags_to_leave(), "-cp", programs_path(), "JavaHost"])
        try:
            for command in _usual_commands(server.bootstrap, server.data_dir):
                client.ask(command)
        finally:
            client.close()
            server.stop()
    of_server.keep()
    of_client.keep()


def _usual_commands(bootstrap: str, data_dir: Path) -> Iterator[dict[str, object]]:
    """For JavaHost: producers, consumers, transactions, and the tools that the tests use most."""
    tools, connected = "org.apache.kafka.tools", ("--bootstrap-server", bootstrap)
    config = {"bootstrap.servers": bootstrap}

    def tool(main: str, *arguments: str) -> dict[str, object]:
        return {"op": "tool", "main": main, "args": arguments, "stdin": ""}

    for topic in ("in", "out"):
        yield tool(f"{tools}.TopicCommand", *connected, "--create", "--topic", topic)
    value = to_text(b"value")
    records = [{"partition": 0, "timestamp": None, "key": value, "value": value, "headers": [["name", value]]}] * 10
    yield {"op": "produce", "config": config, "topic": "in", "records": records}
    yield {"op": "consume", "config": config, "topic": "in", "count": 10, "timeout_ms": 10_000}
    for protocol in ("classic", "consumer"):
        words = ("--topic", "in", "--from-beginning", "--max-messages", "10", "--group", protocol)
        yield tool(f"{tools}.consumer.ConsoleConsumer", *connected, *words, "--consumer-property", f"group.protocol={protocol}")
    yield tool(
        f"{tools}.TransactionalMessageCopier", "--broker-list", bootstrap, "--transactional-id", "copier", "--consumer-group", "copiers",
        "--input-topic", "in", "--input-partition", "0", "--output-topic", "out", "--transaction-size", "5",
    )  # fmt: skip
    yield tool(f"{tools}.TopicCommand", *connected, "--describe")
    yield tool(f"{tools}.consumer.group.ConsumerGroupCommand", *connected, "--describe", "--all-groups")
    yield tool("kafka.admin.ConfigCommand", *connected, "--describe", "--all", "--topic", "in")
    yield tool(f"{tools}.MetadataQuorumCommand", *connected, "describe", "--status")
    yield tool(f"{tools}.DumpLogSegments", "--print-data-log", "--files", str(data_dir / "out-0" / "00000000000000000000.log"))
    yield tool("kafka.tools.StorageTool", "random-uuid")


def java_source(file_name: str) -> str:
    """A program of tests/support/java."""
    return str(Path(__file__).resolve().parent / "java" / file_name)


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
        words = () if properties.exists() else self._prepare(properties)
        flags = kept_classes()[0].flags() if self.class_flags is None else self.class_flags
        main_class = "FormattedKafka" if words else "kafka.Kafka"
        return ["java", *JVM_FLAGS, *flags, "-cp", programs_path(), main_class, str(properties), *words]

    def end(self) -> None:
        """kill -9: how Kafka stops is not what is tested, and takes a second."""
        self.kill()

    def _prepare(self, properties: Path) -> Sequence[str]:
        """Writes the properties. Returns how kafka-storage is to format the directories before the server starts; empty if that is done."""
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
        return ("format", "-t", self.cluster_id, "-c", str(properties), *self.format_arguments)
