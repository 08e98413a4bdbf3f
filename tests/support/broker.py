"""Barnabas as a child process: `barnabas serve` from the checkout, on a directory and a port of its own."""

from __future__ import annotations

import contextlib
import io
import os
import sys

from broker.cli.format import format_storage
from tests.support.process import ServerProcess, cache_dir


class BrokerProcess(ServerProcess):
    """Runs `python -m broker.cli.main serve` of this checkout under the interpreter that runs the tests."""

    name = "barnabas"

    def command(self) -> list[str]:
        settings = {
            "listeners": f"PLAINTEXT://{self.host}:{self.port}",
            "log.dirs": str(self.data_dir),
            **self.settings,
        }
        overrides = [word for key, value in settings.items() for word in ("--override", f"{key}={value}")]
        return [sys.executable, "-m", "broker.cli.main", "serve", *overrides]

    def format(self, cluster_id: str, *arguments: str) -> None:
        """`barnabas format` of its directories, for a cluster that others belong to as well. In this process: one of its own would take
        0.3 s of CPU for each node of the tests' clusters. AssertionError if it refuses."""
        command = self.command()
        words = command[command.index("serve") + 1 :]
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            status = format_storage([*words, "-t", cluster_id, *arguments], self.environment())
        assert status == 0, said.getvalue()

    def environment(self) -> dict[str, str]:
        """Without the caller's KAFKA_… variables: they are configuration to the broker.

        An installed broker has its .pyc files. Where the environment keeps this checkout from getting its own, they are kept in a cache:
        compiling anew takes 100 ms of each start.
        """
        environment = {key: value for key, value in os.environ.items() if not key.startswith("KAFKA_")}
        if environment.pop("PYTHONDONTWRITEBYTECODE", ""):
            environment.setdefault("PYTHONPYCACHEPREFIX", str(cache_dir() / "pycache"))
        return environment


class OnKafkasProperties(BrokerProcess):
    """Barnabas with nothing but the file that Apache Kafka ran with."""

    def command(self) -> list[str]:
        return [sys.executable, "-m", "broker.cli.main", "serve", "--config", str(self.directory / "server.properties")]
