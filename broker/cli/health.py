"""`barnabas health`: whether the node that a configuration describes answers. The image's health check.

It reads the settings as `serve` does, so that it asks where the node listens, whatever that is.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from broker.cli.serve_arguments import ServeOptions, UsageError, parse_arguments
from broker.cli.wire_client import WireClient
from config.endpoints import Endpoint
from config.loading import load_server_config
from config.server import ServerConfig

USAGE = """\
usage: barnabas health [the arguments of barnabas serve]

Asks the first listener of the node that serve would run with these arguments and environment variables: of a broker a listener for
clients, of a controller alone its own. Exit code 0 if it answers. Without arguments, those of the container's own process count.
"""

TIMEOUT_S = 3.0
FIRST_PROCESS = Path("/proc/1/cmdline")
_EVERY_ADDRESS = {"": "localhost", "0.0.0.0": "127.0.0.1", "::": "::1"}


def health(arguments: list[str]) -> int:
    """Print whether the node answers; returns the exit code. Raises ConfigError for a wrong setting."""
    if "--help" in arguments or "-h" in arguments:
        print(USAGE, end="")
        return 0
    try:
        options = parse_arguments(arguments or container_arguments(FIRST_PROCESS))
    except UsageError as e:
        print(f"barnabas health: {e}; barnabas health --help says more", file=sys.stderr)
        return 2
    config = _load(options, os.environ)
    endpoint = _listener_of(config)
    host = _EVERY_ADDRESS.get(endpoint.host, endpoint.host)
    security = None
    if endpoint.security_protocol in ("SSL", "SASL_SSL"):
        from broker.cli.client_security import security_of_listener

        security = security_of_listener(config.texts, endpoint.listener_name, endpoint.security_protocol)
    try:
        WireClient(host, endpoint.port, timeout_s=TIMEOUT_S, security=security).close()
    except OSError as e:
        print(f"barnabas health: {endpoint} does not answer: {e.strerror or e}", file=sys.stderr)
        return 1
    print(f"{endpoint} answers")
    return 0


def find_listener(options: ServeOptions, environ: Mapping[str, str]) -> Endpoint:
    """The listener that a node with these settings can be asked by. Raises ConfigError."""
    return _listener_of(_load(options, environ))


def _load(options: ServeOptions, environ: Mapping[str, str]) -> ServerConfig:
    port = [] if options.port is None else [f"listeners=PLAINTEXT://localhost:{options.port}"]
    return load_server_config(options.config_path, environ, [*port, *options.overrides])


def _listener_of(config: ServerConfig) -> Endpoint:
    return (config.client_listeners or config.controller_listeners)[0]


def container_arguments(command_line: Path) -> list[str]:
    """What `serve` was given in the command line of the first process, which in a container is the broker or an init before it; else none:
    such a file is of Linux, and another process may be the first."""
    try:
        words = command_line.read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []
    for position, word in enumerate(words[:-1]):
        if word.rpartition("/")[2] == "barnabas" and words[position + 1] == "serve":
            return words[position + 2 :]
    return []
