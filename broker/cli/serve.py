"""`barnabas serve`: load the settings and run the broker until it is told to stop."""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING

from broker.cli.serve_arguments import USAGE, ServeOptions, UsageError, parse_arguments
from config.loading import load_server_config

if TYPE_CHECKING:
    from broker.cli.console_process import ConsoleProcess


def serve(arguments: list[str]) -> int:
    """Run the broker; returns its exit code. Raises ConfigError for a wrong setting."""
    if "--help" in arguments or "-h" in arguments:
        print(USAGE, end="")
        return 0
    try:
        options = parse_arguments(arguments)
    except UsageError as e:
        print(f"barnabas serve: {e}; barnabas serve --help says more", file=sys.stderr)
        return 2
    gc.disable()  # until the broker sets its own thresholds: importing makes no garbage worth 5 ms of looking for it
    if options.console_port is not None:
        from broker.cli.console_process import ConsoleProcess

        with ConsoleProcess(
            options.console_port,
            options.console_config,
            allows_login=options.console_allows_login,
            token_file=options.console_token_file,
        ) as console:
            return _serve(options, console)
    return _serve(options, None)


def _serve(options: ServeOptions, console: ConsoleProcess | None) -> int:
    if options.ephemeral_directory is not None:
        from broker.cli.ephemeral import Ephemeral

        with Ephemeral(options, console) as ephemeral:
            return ephemeral.serve()
    listeners = [] if options.port is None else [f"listeners=PLAINTEXT://localhost:{options.port}"]
    config = load_server_config(options.config_path, os.environ, [*listeners, *options.overrides])
    if console is not None:
        console.check(config)
    from broker.server.process import run

    # CLUSTER_ID is what the official container image formats its directory with.
    cluster_id = options.cluster_id or os.environ.get("CLUSTER_ID", "")
    return run(
        config,
        log_level=options.log_level,
        log_format=options.log_format,
        new_cluster_id=cluster_id,
        on_ready=None if console is None else console.start,
    )
