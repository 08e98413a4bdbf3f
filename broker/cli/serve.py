"""`barnabas serve`: load the settings and run the broker until it is told to stop.

argparse is not used on this path: it takes 6 ms to import, and a start has few to spare. Two options do not need it.
"""

from __future__ import annotations

import gc
import os
import sys

from config.loading import load_server_config

USAGE = """\
usage: barnabas serve [--config FILE] [--override KEY=VALUE]…

Runs the broker in the foreground until SIGTERM or SIGINT.

  -c, --config FILE      a Kafka server.properties (default: the shipped one, one node on localhost:9092)
  --override KEY=VALUE   set one property; may be given many times, and wins over file and environment

KAFKA_… environment variables set properties as in the official container image: KAFKA_LOG_DIRS is log.dirs.
"""


LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"


class UsageError(Exception):
    """The command line cannot be understood."""


def serve(arguments: list[str]) -> int:
    """Run the broker; returns its exit code. Raises ConfigError for a wrong setting."""
    if "--help" in arguments or "-h" in arguments:
        print(USAGE, end="")
        return 0
    try:
        path, overrides = parse_arguments(arguments)
    except UsageError as e:
        print(f"barnabas serve: {e}\n{USAGE}", end="", file=sys.stderr)
        return 2
    gc.disable()  # until the broker sets its own thresholds: importing makes no garbage worth 5 ms of looking for it
    config = load_server_config(path, os.environ, overrides)
    from broker.server import run

    return run(config)


def parse_arguments(arguments: list[str]) -> tuple[str | None, list[str]]:
    """The file (None for the shipped one) and the overrides. As in kafka-server-start, the file may also come without --config."""
    path: str | None = None
    overrides: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        option, has_value, value = argument.partition("=")
        if option in ("--config", "-c", "--override"):
            if not has_value:
                value = next(rest, "")
            if not value:
                raise UsageError(f"{option} needs a value")
            if option == "--override":
                overrides.append(value)
            else:
                path = value
        elif argument.startswith("-") or path is not None:
            raise UsageError(f"unknown argument {argument}")
        else:
            path = argument
    return path, overrides
