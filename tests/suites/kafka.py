"""Apache Kafka's own integration tests of transactions and of rights, unmodified, against this broker:
`python -m tests.suites.kafka [CLASS[#METHOD]…]`.

The tests are in Kafka's test jars on Maven Central. Before these on the class path are the classes of `java/`, one of which has the name of
Kafka's class that starts brokers for tests, and takes brokers that are processes of their own (`clusters.py`). Each test gets as many as it
asks for, with the settings that it asks for. BARNABAS_TEST_SERVER=kafka makes them processes of Apache Kafka: that tells whose fault a
failure is.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.suites.clusters import ClusterService
from tests.support.jvm import KeptClasses, programs_jar
from tests.support.kafka import JVM_FLAGS, KAFKA_VERSION, class_path_of

CLASS_MAX_S = 3_600
GROUP = "org.apache.kafka"
JARS: tuple[tuple[str, ...], ...] = (
    *((GROUP, artifact, KAFKA_VERSION) for artifact in ("kafka_2.13", "kafka-streams", "connect-runtime", "connect-mirror")),
    *((GROUP, artifact, KAFKA_VERSION) for artifact in ("kafka-test-common-runtime", "kafka-test-common-internal-api")),
    (GROUP, "kafka_2.13", KAFKA_VERSION, "test"),
    (GROUP, "kafka-clients", KAFKA_VERSION, "test"),
    (GROUP, "kafka-clients-integration-tests", KAFKA_VERSION, "test"),
    (GROUP, "kafka-server-common", KAFKA_VERSION, "test"),
    (GROUP, "kafka-metadata", KAFKA_VERSION, "test"),
    (GROUP, "kafka-streams", KAFKA_VERSION, "test"),
    (GROUP, "kafka-streams-integration-tests", KAFKA_VERSION, "test"),
    (GROUP, "connect-runtime", KAFKA_VERSION, "test"),
    (GROUP, "connect-mirror", KAFKA_VERSION, "test"),
    ("org.slf4j", "slf4j-simple", "1.7.36"),
    ("org.hamcrest", "hamcrest", "3.0"),
    ("org.junit.platform", "junit-platform-console", "1.13.1"),
)
# The tests run streams programs, a Connect worker or two MirrorMakers in the JVM.
SUITE_JVM_FLAGS = (*JVM_FLAGS, "-Xmx1g", "-Dorg.slf4j.simpleLogger.showDateTime=true")
EXTENSION = "META-INF/services/org.junit.jupiter.api.extension.Extension"


@dataclass(frozen=True, slots=True)
class Suite:
    """A class of tests. `left_out` has the reason for its methods that do not run, by regular expressions of their names."""

    package: str
    left_out: Mapping[str, str] = field(default_factory=dict)


STREAMS = Suite("org.apache.kafka.streams.integration")
CLIENTS = Suite("org.apache.kafka.clients")
NO_SHARE_GROUPS, NO_STREAMS_GROUPS = "there are no share groups here", "there are no streams groups here"
MIRROR = Suite("org.apache.kafka.connect.mirror.integration")
SUITES: Mapping[str, Suite] = {
    "TransactionsWithMaxInFlightOneTest": CLIENTS,
    "AdminFenceProducersTest": Suite("org.apache.kafka.clients.admin"),
    "TransactionsExpirationTest": CLIENTS,
    "ProducerIdExpirationTest": Suite("org.apache.kafka.clients.producer"),
    "GlobalKTableEOSIntegrationTest": STREAMS,
    "EOSUncleanShutdownIntegrationTest": STREAMS,
    "StandbyTaskEOSIntegrationTest": STREAMS,
    "StandbyTaskEOSMultiRebalanceIntegrationTest": STREAMS,
    "EosIntegrationTest": STREAMS,
    "ExactlyOnceSourceIntegrationTest": Suite(
        "org.apache.kafka.connect.integration", {"testTasksFailOnInabilityToFence": "needs brokers with an authorizer"}
    ),
    "MirrorConnectorsIntegrationExactlyOnceTest": MIRROR,
    "MirrorConnectorsIntegrationTransactionsTest": MIRROR,
    "TransactionsTest": Suite("kafka.api"),
    "TransactionsBounceTest": Suite("kafka.api"),
    "AuthorizerIntegrationTest": Suite(
        "kafka.api",
        {
            ".*Share.*": NO_SHARE_GROUPS,
            ".*StreamsGroup.*": NO_STREAMS_GROUPS,
            "testAuthorizationWithTopicExisting": f"{NO_SHARE_GROUPS}: its table, which passes up to there, goes on with them",
            "testAuthorizationWithTopicNotExisting": f"{NO_SHARE_GROUPS}: its table, which passes up to there, goes on with them",
        },
    ),
}


@dataclass(slots=True)
class Outcome:
    """What became of a class's tests, by name: the failed ones' traces, and why others did not run."""

    passed: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{len(self.passed)} passed, {len(self.failed)} failed, {len(self.left_out)} left out, {self.seconds:.0f} s"


def suites_path() -> str:
    """The class path with the classes of `java/` at its head."""
    found = class_path_of("kafka-own-tests", JARS)
    sources = sorted((Path(__file__).parent / "java").glob("*.java"))
    flags, services = ("-XDignore.symbol.file", "-proc:none"), {EXTENSION: "barnabas.suites.WithoutStreamsGroups\n"}
    return f"{programs_jar('kafka-own-tests-programs', sources, found, flags=flags, more=services)}:{found}"


def run(name: str, method: str, class_path: str, directory: Path) -> Outcome:
    """Run a class of `SUITES`, or one method of it if `method` is not empty. `directory` gets the reports and all logs."""
    suite = SUITES[name]
    full_name = f"{suite.package}.{name}"
    reports, log = directory / "reports", directory / "suite.log"
    directory.mkdir(parents=True, exist_ok=True)
    classes = KeptClasses("kafka-own-tests", class_path)
    # What is selected by its class is filtered by method: how a test's parameters are written need not be known.
    words = [f"--select-class={full_name}", f"--include-methodname={full_name}#{method or '.*'}"]
    words += [f"--exclude-methodname={full_name}#{left_out}" for left_out in suite.left_out]
    with ClusterService(os.environ.get("BARNABAS_TEST_SERVER", "barnabas"), directory) as clusters, log.open("wb") as output:
        subprocess.run(
            [
                "java", *SUITE_JVM_FLAGS, *(classes.flags() or classes.flags_to_leave()),
                f"-Dbarnabas.clusters={clusters.address}", f"-Djava.io.tmpdir={directory}", "-cp", class_path,
                "org.junit.platform.console.ConsoleLauncher", "execute", *words, "--disable-banner", "--details=testfeed",
                "--disable-ansi-colors", f"--reports-dir={reports}", "--config=junit.jupiter.extensions.autodetection.enabled=true",
            ],
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, timeout=CLASS_MAX_S, check=False,
        )  # fmt: skip
    classes.keep()
    outcome = _read_reports(reports / "TEST-junit-jupiter.xml")
    assert outcome.passed or outcome.failed, f"nothing ran:\n{log.read_text()[-8_000:]}"
    outcome.left_out.update(suite.left_out)
    return outcome


def _read_reports(report: Path) -> Outcome:
    outcome = Outcome()
    if not report.exists():
        return outcome
    for case in ElementTree.parse(report).iter("testcase"):
        name = case.attrib["name"]
        output = case.findtext("system-out") or ""
        shown = next((line.removeprefix("display-name: ") for line in output.splitlines() if line.startswith("display-name: ")), "")
        name = f"{name} {shown}"
        outcome.seconds += float(case.attrib["time"])
        problem = next((each for each in case if each.tag in ("failure", "error", "skipped")), None)
        if problem is None:
            outcome.passed.append(name)
        elif problem.tag == "skipped":
            outcome.left_out[name] = (problem.text or "").splitlines()[0]
        else:
            outcome.failed[name] = problem.text or ""
    return outcome


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.suites.kafka", description=__doc__.partition("\n")[0])
    parser.add_argument("tests", nargs="*", metavar="CLASS[#METHOD]", help=f"by default all of {', '.join(SUITES)}")
    asked = parser.parse_args(words).tests or list(SUITES)
    if unknown := [test for test in asked if test.partition("#")[0] not in SUITES]:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(SUITES)}")
    directory = Path(tempfile.mkdtemp(prefix="kafka-suites-"))
    class_path = suites_path()
    failed_count = 0
    for test in asked:
        name, _, method = test.partition("#")
        outcome = run(name, method, class_path, directory / test.replace("#", "-"))
        print(f"{test}: {outcome}", flush=True)
        for failed, trace in outcome.failed.items():
            print(f"  {failed}\n    " + "\n    ".join(trace.splitlines()[:12]), flush=True)
        failed_count += len(outcome.failed)
    if failed_count:
        print(f"logs are in {directory}")
    else:
        shutil.rmtree(directory)
    return bool(failed_count)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
