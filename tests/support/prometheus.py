"""Prometheus and promtool, of the machine or of Debian's package: a server that scrapes brokers of the tests, and checks of rule files."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.debian import unpacked
from tests.support.ports import free_port

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
ANSWER_TIMEOUT_S = 120.0
POLL_INTERVAL_S = 0.1
SCRAPE_INTERVAL = "5s"  # also the time that a scrape may take: a busy machine needs seconds
EVALUATION_INTERVAL = "1s"
RUN_TIMEOUT_S = 60


def find_program(name: str) -> str:
    """The path of `prometheus` or `promtool`. Ends the test where it is missing and cannot be fetched."""
    return shutil.which(name) or str(unpacked("prometheus") / "usr/bin" / name)


def promtool(*arguments: str, cwd: Path | None = None) -> str:
    """What promtool prints; AssertionError if it finds a mistake."""
    done = subprocess.run(
        [find_program("promtool"), *arguments], cwd=cwd, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Prometheus:
    """One server that scrapes `targets`, from host:port to the labels that its configuration gives to what comes from there. Its job is
    `kafka`. With `relabelling` the job `renamed` scrapes them once more, with these metric_relabel_configs."""

    def __init__(
        self,
        directory: Path,
        targets: Mapping[str, Mapping[str, str]],
        *,
        rule_files: Sequence[Path] = (),
        relabelling: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self._directory = directory
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        servers = [{"targets": [address], "labels": dict(labels)} for address, labels in targets.items()]
        jobs: list[dict[str, Any]] = [{"job_name": "kafka", "static_configs": servers}]
        if relabelling:
            jobs.append({"job_name": "renamed", "static_configs": servers, "metric_relabel_configs": list(relabelling)})
        config = {
            "global": {"scrape_interval": SCRAPE_INTERVAL, "evaluation_interval": EVALUATION_INTERVAL},
            "rule_files": [str(path) for path in rule_files],
            "scrape_configs": jobs,
        }
        (directory / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML

    def __enter__(self) -> Self:
        words = [
            f"--config.file={self._directory / 'prometheus.yml'}", f"--storage.tsdb.path={self._directory / 'prometheus'}",
            f"--web.listen-address=127.0.0.1:{self._port}", "--log.level=error",
        ]  # fmt: skip
        with (self._directory / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen([find_program("prometheus"), *words], stdout=log, stderr=log)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._is_ready():
            assert self._process.poll() is None and time.monotonic() < deadline, (self._directory / "prometheus.log").read_text()
            time.sleep(POLL_INTERVAL_S)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(STOP_TIMEOUT_S)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The vector that the expression is now: labels (`metric`) and `value`, a time and a text."""
        result: list[dict[str, Any]] = self._get("query", query=expression)["result"]
        return result

    def wait_for(self, expression: str) -> list[dict[str, Any]]:
        """As `query`, as soon as it is not empty: a rate needs two scrapes. AssertionError if it stays empty."""
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while not (result := self.query(expression)):
            assert time.monotonic() < deadline, f"no answer to {expression}"
            time.sleep(POLL_INTERVAL_S)
        return result

    def firing(self) -> set[str]:
        """The names of the alerts that fire."""
        return {alert["labels"]["alertname"] for alert in self._get("alerts")["alerts"] if alert["state"] == "firing"}

    def wait_firing(self, name: str) -> None:
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while name not in (firing := self.firing()):
            assert time.monotonic() < deadline, f"{name} does not fire, but {firing}"
            time.sleep(POLL_INTERVAL_S)

    def _get(self, what: str, **parameters: str) -> dict[str, Any]:
        address = f"http://127.0.0.1:{self._port}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(address, timeout=10) as answer:
                found: dict[str, Any] = json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error
        return found

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/-/ready", timeout=10) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False
