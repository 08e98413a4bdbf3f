"""`barnabas serve --ephemeral`: a broker for one test run, whatever language its tests are written in.

It prints its address as one line of JSON, keeps its data in a temporary directory, and ends with the process that holds the other end of
its standard input: a pipe closes when its holder dies, however it dies. `barnabas.Broker` is built on this.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from broker.cli.addresses import advertised_address
from broker.cli.serve_arguments import ServeOptions
from broker.server.version import VERSION
from config.endpoints import address_text
from config.loading import load_server_config, read_properties
from config.properties import ConfigError
from config.server import SERVER_PROPERTIES, ServerConfig

if TYPE_CHECKING:
    from broker.cli.console_process import ConsoleProcess
    from broker.server.server import Broker

# For a test as for the shipped server.properties; a group's first consumer makes one partition of the internal topic instead of 50.
SETTINGS = ("barnabas.auto.format=true", "offsets.topic.num.partitions=1", "transaction.state.log.num.partitions=1")
HOST = "127.0.0.1"  # not localhost: clients that try its IPv6 address first would find another broker's port there
STDIN = 0
STOP_TIMEOUT_S = 30.0
REMOVE_TRIES_MAX = 20


class Ephemeral:
    """The settings, the ready line and the end of one ephemeral broker. Leaving its context removes its temporary directory.

    With `directory` the data are there, are made if missing, and stay after a stop for the next start; they too are removed when
    standard input has closed. A user's own log.dirs is never removed.
    """

    def __init__(self, options: ServeOptions, console: ConsoleProcess | None = None) -> None:
        self._options = options
        self._console = console
        directory = options.ephemeral_directory
        self._directory = Path(directory) if directory else None
        self._is_kept = bool(directory)  # after a stop
        self._owns_data = True

    def __enter__(self) -> Ephemeral:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self._is_kept:
            self._remove()

    def serve(self) -> int:
        """Run the broker; returns its exit code. Raises ConfigError for a wrong setting."""
        options = self._options
        properties = read_properties(Path(options.settings_path)) if options.settings_path else {}
        config = self._load_config([*(f"{key}={value}" for key, value in properties.items()), *options.overrides])
        if self._console is not None:
            self._console.check(config)
        from broker.server.process import run  # imported late: a wrong setting is reported 0.1 s sooner

        return run(
            config,
            log_level=options.log_level,
            log_format=options.log_format,
            new_cluster_id=options.cluster_id,
            on_start=self._watch,
            ready_line=self._ready_line,
            on_ready=None if self._console is None else self._console.start,
        )

    def _load_config(self, overrides: Sequence[str]) -> ServerConfig:
        """The settings: ours, then `overrides`; neither a file nor the environment, so that a test means the same everywhere.

        Makes the directory. Raises ConfigError, also for a key that is no property: a test broker's warnings are not read.
        """
        given = {override.partition("=")[0].strip() for override in overrides}
        self._owns_data = not given & {"log.dirs", "log.dir"}
        settings = [*SETTINGS, f"listeners=PLAINTEXT://{HOST}:{self._options.port or 0}"]
        if self._owns_data:
            settings.append(f"log.dirs={self._make_directory()}")
        if self._options.is_secure:
            settings += self._security(overrides)
        config = load_server_config(None, {}, [*settings, *overrides])
        for key in config.unknown_keys:
            raise ConfigError(key, "", "", message=f"Unknown configuration {key}{_suggestion(key)}")
        return config

    def _security(self, overrides: Sequence[str]) -> list[str]:
        from broker.cli import ephemeral_security

        if not self._owns_data:
            raise ConfigError("--secure", None, "", message="--secure keeps its keys in its own directory: log.dirs cannot be set with it")
        directory, keys = self._make_directory(), self._options.keys_directory
        values = dict(override.split("=", 1) for override in overrides if "=" in override)
        controllers = [name.strip() for name in values.get("controller.listener.names", "").split(",") if name.strip()]
        try:
            identity = ephemeral_security.open_identity(directory, Path(keys) if keys else None)
            return ephemeral_security.settings(identity, HOST, self._options.port or 0, controllers)
        except (OSError, ValueError, KeyError) as e:
            message = f"--secure: {directory / ephemeral_security.SECRETS_FILE} cannot be used"
            raise ConfigError("--secure", None, "", message=message) from e

    def _ready_line(self, broker: Broker) -> str:
        """The one line on standard output, for programs. Addresses are those of the first listener, as clients are told it."""
        # Otherwise librdkafka's first group or transaction waits up to a second, in each test with a broker of its own.
        broker.prepare_internal_topics()
        host, port = advertised_address(broker, broker.config.client_advertised_listeners[0].listener_name)
        return json.dumps(
            {
                "bootstrap_servers": address_text(host, port),
                "host": host,
                "port": port,
                "pid": os.getpid(),
                "data_dir": broker.config.log_dirs[0],
                "version": VERSION,
            }
        )

    def _watch(self, broker: Broker) -> None:
        """End the broker when standard input closes. Called on the loop, before the broker starts."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, broker.request_stop, 0, "SIGHUP")  # a terminal that closes
        if _ends_with_its_writer(STDIN):
            # A thread rather than the loop: what is never in time must still end.
            threading.Thread(target=self._wait_for_end, args=(loop, broker), name="barnabas-stdin", daemon=True).start()

    def _wait_for_end(self, loop: asyncio.AbstractEventLoop, broker: Broker) -> None:
        with contextlib.suppress(OSError):  # a socket that was reset has ended as well
            while os.read(STDIN, 4096):
                pass
        if not self._owns_data:
            with contextlib.suppress(RuntimeError):  # the loop has closed: the broker was stopping already
                loop.call_soon_threadsafe(broker.request_stop, 0, "standard input has closed")
            time.sleep(STOP_TIMEOUT_S)
        # A clean stop would write files that are never read.
        self._remove()
        os._exit(0 if self._owns_data else 1)

    def _make_directory(self) -> Path:
        try:
            if self._directory is None:
                self._directory = Path(tempfile.mkdtemp(prefix="barnabas-"))
            self._directory.mkdir(mode=0o700, exist_ok=True)
        except OSError as e:
            where = self._directory or tempfile.gettempdir()
            raise ConfigError("--ephemeral", where, f"cannot make a directory: {e.strerror}") from e
        if "," in str(self._directory):
            self._remove()
            raise ConfigError("--ephemeral", self._directory, "log.dirs is a list: no directory's name may have a comma (see TMPDIR)")
        return self._directory

    def _remove(self) -> None:
        """Remove the data, more than once where the broker still makes files."""
        import shutil

        for _ in range(REMOVE_TRIES_MAX):
            if self._directory is None or not self._directory.exists():
                return
            shutil.rmtree(self._directory, ignore_errors=True)


def _ends_with_its_writer(descriptor: int) -> bool:
    """Whether a read of `descriptor` ends when another process does. A read of /dev/null ends at once, and a terminal stops a
    background job that reads: neither says anything about a parent."""
    if sys.stdin is None:  # closed: whatever has that number now is something else
        return False
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _suggestion(key: str) -> str:
    from difflib import get_close_matches

    return "".join(f"; did you mean {known}?" for known in get_close_matches(key.replace("_", "."), SERVER_PROPERTIES, 1))
