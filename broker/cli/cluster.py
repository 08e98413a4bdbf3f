"""`barnabas cluster`: a cluster on this machine (`up`), and what any cluster says of itself (`status`)."""

from __future__ import annotations

import sys

USAGE = """\
usage: barnabas cluster up [--brokers N] [--directory DIR] [--port PORT] [--secure] …
       barnabas cluster status [--bootstrap-server HOST:PORT[,…]] [--json] …

  up       run a cluster on this machine, a process for each broker, until SIGTERM or SIGINT
  status   show a cluster's brokers, leaders, in-sync replicas, quorum and lag

clients of any cluster (pip install 'barnabas[cli]'):

  info           a cluster's id, brokers, topics and partitions
  health         exit code 4 if partitions lack leaders or replicas
  reassign       status and cancel: replicas that are being moved
  elect-leaders  let preferred replicas lead, or any that is left
  log-dirs       log directories of brokers; cordon, uncordon: no new partitions for them
  quorum         the metadata quorum; add-voter, remove-voter
  features       features and their levels; upgrade, downgrade
  unregister     forget a broker that is gone

`barnabas cluster up --help` and so on say more.
"""


def cluster(arguments: list[str]) -> int:
    """Run one of its commands; returns the exit code. Raises ConfigError for a wrong setting."""
    command, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if command == "up":
        from broker.cli.cluster_up import up

        return up(rest)
    if command == "status":
        from broker.cli.cluster_status import status

        return status(rest)
    if command in ("--help", "-h", "help"):
        print(USAGE, end="")
        return 0
    unknown = f"barnabas cluster: unknown command {command!r}; barnabas cluster --help lists them\n"
    print(unknown if command else USAGE, end="", file=sys.stderr)
    return 2
