"""Kafka Connect for the tests: its jars, a worker of its distributed mode, its REST interface, and MirrorMaker 2.

A worker has a REST port of its own. What it knows is in three topics of the broker: another one of its group may take its place.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from broker.cli.client_files import escape
from tests.support.jvm import KeptClasses, programs_jar
from tests.support.kafka import JVM_FLAGS, KAFKA_VERSION, class_path_of, java_source
from tests.support.process import ServerProcess
from tests.support.secured_cluster import Endpoint

T = TypeVar("T")

CONNECT_JARS = (
    ("org.apache.kafka", "connect-runtime", KAFKA_VERSION),
    ("org.apache.kafka", "connect-file", KAFKA_VERSION),
    ("org.apache.kafka", "connect-mirror", KAFKA_VERSION),
    ("org.slf4j", "slf4j-simple", "1.7.36"),
)
LOG = "-Dorg.slf4j.simpleLogger."
# What they do is worth reading after a failure; every request and every config is not.
CONNECT_JVM_FLAGS = (
    *JVM_FLAGS,
    f"{LOG}defaultLogLevel=info",
    f"{LOG}log.org.apache.kafka.clients.Metadata=warn",
    f"{LOG}log.org.apache.kafka.clients.consumer.internals.SubscriptionState=warn",
    f"{LOG}log.org.apache.kafka.common.config=warn",
    f"{LOG}log.org.apache.kafka.connect.runtime.rest=warn",
    f"{LOG}showDateTime=true",
)
WAIT_MAX_S = 90.0
POLL_INTERVAL_S = 0.1
REST_TIMEOUT_S = 30.0
VIEW_MAX_S = 60
# As short as brokers allow or as a busy machine bears: what a worker does once a minute or after a delay is what tests wait for.
WORKER_SETTINGS: Mapping[str, str] = {
    "config.storage.topic": "connect-configs",
    "offset.storage.topic": "connect-offsets",
    "status.storage.topic": "connect-status",
    # What the broker has by default, as for the topics of its connectors.
    "config.storage.replication.factor": "-1",
    "offset.storage.replication.factor": "-1",
    "status.storage.replication.factor": "-1",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "plugin.discovery": "service_load",
    "offset.flush.interval.ms": "500",
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "500",
    "scheduled.rebalance.max.delay.ms": "0",
    "rebalance.timeout.ms": "20000",
    # A busy machine must not make a stop in good order a hard one.
    "offset.flush.timeout.ms": "30000",
    "task.shutdown.graceful.timeout.ms": "30000",
}
# What MirrorMaker does every few minutes it does every second.
MIRROR_SETTINGS: Mapping[str, str] = {
    "replication.factor": "1",
    "checkpoints.topic.replication.factor": "1",
    "heartbeats.topic.replication.factor": "1",
    "offset-syncs.topic.replication.factor": "1",
    "config.storage.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "status.storage.replication.factor": "1",
    "offset.storage.partitions": "2",
    "refresh.topics.interval.seconds": "1",
    "refresh.groups.interval.seconds": "1",
    "sync.topic.configs.interval.seconds": "1",
    "sync.topic.acls.interval.seconds": "1",
    "emit.heartbeats.interval.seconds": "1",
    "emit.checkpoints.interval.seconds": "1",
    "sync.group.offsets.enabled": "true",
    "sync.group.offsets.interval.seconds": "1",
    "offset.lag.max": "0",  # every record's offset is translated, not every hundredth's
    "plugin.discovery": "service_load",  # seconds faster than to look through all jars
    "tasks.max": "1",
}
# What its two workers have to be told cluster by cluster: MirrorMaker passes them nothing else.
MIRROR_WORKER_SETTINGS: Mapping[str, str] = {
    "offset.flush.interval.ms": "500",
    "plugin.discovery": "service_load",
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "500",
    "scheduled.rebalance.max.delay.ms": "0",
}


def connect_class_path() -> str:
    return class_path_of("kafka-connect", CONNECT_JARS)


class RestError(AssertionError):
    """The worker answered with an error. `status` is HTTP's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"HTTP {status}: {message}")
        self.status = status


class ConnectProcess(ServerProcess):
    """A JVM with Connect's jars. `settings` are all that it is told."""

    main_class: str

    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        super().__init__(directory)
        self.settings = dict(settings)
        self._classes = KeptClasses("kafka-connect", connect_class_path())

    def command(self) -> list[str]:
        flags = self._classes.flags() or self._classes.flags_to_leave()
        properties = self.directory / f"{self.name}.properties"
        properties.write_text("".join(f"{key}={escape(value)}\n" for key, value in self.settings.items()))
        return ["java", *CONNECT_JVM_FLAGS, *flags, "-cp", connect_class_path(), self.main_class, str(properties)]

    def stop(self) -> int:
        status = super().stop()
        self._classes.keep()
        return status

    def end(self) -> None:
        """It is not needed any more: kill -9, which is quick, unless it has to leave its classes to those that come after it."""
        if self.is_running and not self._classes.flags():
            self.stop()
        self.kill()

    def wait_for(self, find: Callable[[], T | None], what: str) -> T:
        """What `find` returns once that is true; the process need not run meanwhile. AssertionError with the log's tail if it never is."""
        deadline = time.monotonic() + WAIT_MAX_S
        while True:
            if found := find():
                return found
            if time.monotonic() > deadline:
                raise AssertionError(f"{what} within {WAIT_MAX_S} s\n{self.log_tail()}")
            time.sleep(POLL_INTERVAL_S)


class ConnectWorker(ConnectProcess):
    """A worker of Connect's distributed mode."""

    name = "connect"
    main_class = "org.apache.kafka.connect.cli.ConnectDistributed"

    def __init__(self, directory: Path, endpoint: Endpoint, group: str, settings: Mapping[str, str] | None = None) -> None:
        """The worker, and the clients of its connectors, log in as the endpoint's user."""
        connection = {"bootstrap.servers": endpoint.bootstrap}
        for prefix in ("", "producer.", "consumer.", "admin."):
            connection |= endpoint.security(prefix)
        super().__init__(directory, {**connection, "group.id": group, **WORKER_SETTINGS, **(settings or {})})
        self.settings["listeners"] = f"http://{self.host}:{self.port}"

    def serves(self) -> bool:
        """Whether it has read its topics and belongs to its group (KIP-1017)."""
        try:
            return self._request("GET", "/health", None)["status"] == "healthy"
        except (OSError, http.client.HTTPException, RestError):
            return False

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """The answer's JSON, asked again while the group is being rebalanced. RestError if it refuses."""
        deadline = time.monotonic() + WAIT_MAX_S
        while True:
            try:
                return self._request(method, path, body)
            except RestError as refusal:
                if refusal.status != http.client.CONFLICT or time.monotonic() > deadline:
                    raise
            time.sleep(POLL_INTERVAL_S)

    def _request(self, method: str, path: str, body: object) -> Any:
        data = None if body is None else json.dumps(body).encode()
        url = f"http://{self.host}:{self.port}{path}"
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=REST_TIMEOUT_S) as answer:
                text = answer.read()
        except urllib.error.HTTPError as e:
            raise RestError(e.code, e.read().decode(errors="replace")) from e
        return json.loads(text) if text else None


class MirrorMaker(ConnectProcess):
    """MirrorMaker 2 in dedicated mode: it copies topics and groups of each cluster to the other one, after the source's alias and a dot."""

    name = "mirror"
    main_class = "org.apache.kafka.connect.mirror.MirrorMaker"
    started_line = "Kafka MirrorMaker started"

    def __init__(self, directory: Path, clusters: Mapping[str, Endpoint]) -> None:
        """`clusters` are two, by their aliases."""
        first, second = clusters
        super().__init__(
            directory,
            {
                "clusters": f"{first},{second}",
                **{f"{alias}.{name}": value for alias, endpoint in clusters.items() for name, value in endpoint.java.items()},
                **{f"{alias}.{key}": value for alias in clusters for key, value in MIRROR_WORKER_SETTINGS.items()},
                f"{first}->{second}.enabled": "true",
                f"{second}->{first}.enabled": "true",
                **MIRROR_SETTINGS,
            },
        )

    def serves(self) -> bool:
        """Whether it has started since it was launched."""
        return self.started_line in self.log_since_launch()

    def launch(self) -> None:
        self._log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        super().launch()

    def view(self, bootstrap: str, source: str, group: str) -> dict[str, Any]:
        """What MirrorMaker's client for applications (java/MirrorView.java) finds at a cluster that has the copies."""
        programs = programs_jar("mirror-programs", [Path(java_source("MirrorView.java"))], connect_class_path())
        class_path = f"{connect_class_path()}:{programs}"
        command = ["java", *JVM_FLAGS, *self._classes.flags(), "-cp", class_path, "MirrorView", bootstrap, source, group, str(VIEW_MAX_S)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_MAX_S, check=False)
        assert done.returncode == 0, done.stderr
        view: dict[str, Any] = json.loads(done.stdout)
        return view

    def log_since_launch(self) -> str:
        return self.log_path.read_bytes()[self._log_start :].decode(errors="replace")
