"""Describe topics: leaders, replicas with their lag, ISR and offsets of the partitions, and the settings that differ from the default."""

from __future__ import annotations

import argparse
from typing import Any

from confluent_kafka.admin import ResourceType

from barnabas.cli import arguments
from barnabas.cli.cluster_facts import Partition, configs, get_topics, is_default, partitions_of, setting, sizes, starts_and_ends
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE
from barnabas.cli.group.offsets import groups_of_topic
from barnabas.cli.output import Column, Output, human_bytes, thousands
from barnabas.cli.settings import resolve
from barnabas.cli.topic.replica_lags import replica_lags

PARTITIONS = (
    Column("partition", "PARTITION", is_number=True),
    Column("leader", "LEADER", is_number=True),
    Column("replicas", "REPLICAS"),
    Column("isr", "ISR"),
    Column("lags", "LAGS"),
    Column("start_offset", "START", is_number=True),
    Column("end_offset", "END", is_number=True),
    Column("records", "RECORDS", thousands, is_number=True),
    Column("size_bytes", "SIZE", human_bytes, is_number=True),
)
CONFIGS = (
    Column("name", "SETTING"),
    Column("value", "VALUE"),
    Column("source", "SET BY"),
    Column("is_read_only", "READ-ONLY", is_wide=True),
)
GROUPS = (Column("group", "GROUP"), Column("partitions", "PARTITIONS", is_number=True), Column("lag", "LAG", thousands, is_number=True))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topics", nargs="+", metavar="TOPIC")
    parser.add_argument("--groups", action="store_true", help="also the groups that have committed offsets of it, and their lag")
    parser.add_argument("-a", "--all-configs", action="store_true", help="also the settings that are the default's")
    arguments.add_output(parser, "-o")
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    output = Output(options.output)
    with Connection(resolve(options)) as connection:
        topics = get_topics(connection, options.topics)
        bounds = starts_and_ends(connection, partitions_of(topics))
        on_disk = sizes(connection, connection.metadata().brokers)
        lags = replica_lags(connection, topics)
        settings = configs(connection, ResourceType.TOPIC, options.topics)
        described = []
        for name, topic in topics.items():
            entries = [entry for entry in settings[name].values() if options.all_configs or not is_default(entry)]
            one: dict[str, Any] = {
                "name": name,
                "partitions": [
                    {**_partition(name, each, bounds, on_disk), "lags": lags[name, each.id]} for _, each in sorted(topic.partitions.items())
                ],
                "configs": [setting(entry) for entry in sorted(entries, key=lambda entry: str(entry.name))],
            }
            if options.groups:
                one["groups"] = groups_of_topic(connection, name, {index: bounds[name, index][1] for index in topic.partitions})
            described.append(one)
    if output.is_data:
        output.data(described)
        return DONE
    for one in described:
        output.line(f"topic {one['name']}")
        output.table(one["partitions"], PARTITIONS)
        for rows, columns in ((one["configs"], CONFIGS), (one.get("groups", ()), GROUPS)):
            if rows:
                output.line("")
                output.table(rows, columns)
    return DONE


def _partition(
    name: str, partition: Any, bounds: dict[Partition, tuple[int | None, int | None]], on_disk: dict[Partition, int] | None
) -> dict[str, Any]:
    start, end = bounds[name, partition.id]
    return {
        "partition": partition.id,
        "leader": None if partition.leader < 0 else partition.leader,
        "replicas": list(partition.replicas),
        "isr": list(partition.isrs),
        "start_offset": start,
        "end_offset": end,
        "records": None if start is None or end is None else end - start,
        "size_bytes": None if on_disk is None else on_disk.get((name, partition.id), 0),
    }
