"""Say whether a cluster is healthy: exit code 4 if a partition has no leader or lacks replicas in its ISR."""

from __future__ import annotations

import argparse

from barnabas.cli import arguments
from barnabas.cli.cluster.facts import cluster_facts
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, UNHEALTHY
from barnabas.cli.output import Output
from barnabas.cli.settings import resolve

NAMES_MAX = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_output(parser, "-o")
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    with Connection(resolve(options)) as connection:
        facts = cluster_facts(connection)
    report = {key: facts[key] for key in ("without_leader", "under_replicated")}
    is_healthy = not any(report.values())
    output = Output(options.output)
    if output.is_data:
        output.data({"is_healthy": is_healthy, **report})
    output.line("healthy" if is_healthy else "unhealthy")
    for key, names in report.items():
        if names:
            more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
            output.line(f"{key.replace('_', ' ')}: {', '.join(names[:NAMES_MAX])}{more}")
    return DONE if is_healthy else UNHEALTHY
