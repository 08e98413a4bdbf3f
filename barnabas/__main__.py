"""The launcher: the `barnabas` command, `python -m barnabas`, and what `barnabas.Broker` starts.

Barnabas's folders import each other by their literal names (`from storage.log import Log`). In a wheel they lie beside this file, in a
checkout beside its folder. The launcher puts the folder that holds them first on the path of its own process: it must be the process,
and nothing of yours may run in it.
"""

from __future__ import annotations

import os
import sys

CLIENT_COMMANDS = frozenset({
    "acl", "acls", "alter", "clone", "completion", "config", "console", "consume", "context", "contexts", "create", "delete", "describe",
    "get", "group", "groups", "log", "perf", "produce", "quota", "quotas", "reset", "top", "topic", "topics", "transaction", "txn", "user",
    "users",
})  # fmt: skip
"""The first words of barnabas/cli/verbs.py, here too so that `serve` does not import them."""

CLIENTS_OF_CLUSTER = frozenset({
    "cordon", "elect-leaders", "features", "health", "info", "leader-election", "log-dirs", "logdirs", "metadata", "partitions", "quorum",
    "reassign", "uncordon", "unregister", "unregister-broker",
})  # fmt: skip
"""The second words of `cluster`, whose other commands are in broker/cli/cluster.py."""


def main() -> int:
    """Run the `barnabas` command and return its exit code."""
    here = os.path.dirname(os.path.abspath(__file__))
    home = here if os.path.isdir(os.path.join(here, "broker")) else os.path.dirname(here)
    sys.path.insert(0, home)
    first, second = (*sys.argv[1:3], "", "")[:2]
    if first in CLIENT_COMMANDS or first == "kafka-tool" or (first == "cluster" and second in CLIENTS_OF_CLUSTER):
        from .cli.main import main as client_command

        return client_command(sys.argv[1:])
    from broker.cli.main import main as command

    return command(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
