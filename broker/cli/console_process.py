"""`barnabas serve --console PORT`: the console as a process of its own beside the broker, which cannot take the broker down.

It is started when the broker serves, and ends with it, however it ends: it holds the other end of the console's standard input. What it
says goes to the broker's standard error.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from broker.cli.addresses import advertised_address
from config.endpoints import address_text
from config.properties import ConfigError

if TYPE_CHECKING:
    from broker.server.server import Broker
    from config.server import ServerConfig

HOME = Path(__file__).resolve().parents[2]
CHECKOUT_OR_SITE = HOME if (HOME / "barnabas").is_dir() else HOME.parent  # in a wheel the broker's folders are in the package
PROGRAM = "import sys; sys.path.insert(0, sys.argv.pop(1)); from barnabas.__main__ import main; sys.exit(main())"
STDERR = 2
STOP_TIMEOUT_S = 5.0


class ConsoleProcess:
    """Leaving its context ends the console."""

    def __init__(self, port: int, client_properties: str = "", *, allows_login: bool = False, token_file: str = "") -> None:
        """`client_properties`: a file by which the console logs in; "" connects to the broker's first listener without security.
        With `allows_login` users of the cluster may change something, and with `token_file` whoever has the token in it."""
        self._port = port
        self._client_properties = client_properties
        self._token_file = token_file
        self._sign_in = [*(["--allow-login"] if allows_login else []), *(["--token-file", token_file] if token_file else [])]
        self._process: subprocess.Popen[bytes] | None = None

    def check(self, config: ServerConfig) -> None:
        """Raises ConfigError if the console could not connect, or has a file that nobody can read."""
        for option, path in (("--console-config", self._client_properties), ("--console-token-file", self._token_file)):
            if path and not os.access(path, os.R_OK):
                raise ConfigError(option, None, "", message=f"{option} {path} cannot be read")
        if not self._client_properties and _plain_listener(config) is None:
            message = "--console needs a listener that is PLAINTEXT, or --console-config FILE, the properties of a client that may log in"
            raise ConfigError("--console", None, "", message=message)

    def start(self, broker: Broker) -> None:
        """Called on the loop, when the broker serves."""
        command = [sys.executable, "-P", "-c", PROGRAM, str(CHECKOUT_OR_SITE), "console", "--port", str(self._port), "--end-with-stdin"]
        command += self._sign_in
        name = _plain_listener(broker.config)
        if self._client_properties:
            command += ["--command-config", self._client_properties]
        elif name is not None:
            command += ["--bootstrap-server", address_text(*advertised_address(broker, name))]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("BARNABAS_")}
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=STDERR, env=environment)
        except OSError as e:
            print(f"barnabas serve: the console could not be started: {e}", file=sys.stderr, flush=True)

    def __enter__(self) -> ConsoleProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _plain_listener(config: ServerConfig) -> str | None:
    """The name of the first listener for clients without TLS and SASL."""
    return next((each.listener_name for each in config.client_listeners if each.security_protocol == "PLAINTEXT"), None)
