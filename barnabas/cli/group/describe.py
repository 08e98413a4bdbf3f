"""Describe groups: by partition the committed offset, the end, the lag in records and in time, and the member that reads it."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from barnabas.cli import arguments
from barnabas.cli.cluster_facts import Partition
from barnabas.cli.cluster_facts import offsets as list_offsets
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, CommandError
from barnabas.cli.group.facts import get_groups, type_of
from barnabas.cli.group.offsets import committed, lag_of, latest, total_lag
from barnabas.cli.group.states import states_of
from barnabas.cli.group.waiting_since import first_timestamps
from barnabas.cli.output import CLEAR, Column, Output, human_duration, signed_rate, thousands
from barnabas.cli.settings import resolve

PARTITIONS = (
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", is_number=True),
    Column("committed_offset", "COMMITTED", is_number=True),
    Column("end_offset", "END", is_number=True),
    Column("lag", "LAG", thousands, is_number=True),
    Column("lag_ms", "BEHIND", human_duration, is_number=True),
    Column("client_id", "CLIENT ID"),
    Column("host", "HOST"),
    Column("member_id", "MEMBER", is_wide=True),
    Column("instance_id", "INSTANCE", is_wide=True),
)
TREND = Column("lag_per_s", "LAG/S", signed_rate, is_number=True)
"""Of --watch, from the second time on."""
IDLE = (Column("client_id", "CLIENT ID"), Column("host", "HOST"), Column("member_id", "MEMBER WITHOUT PARTITIONS"))
WATCH_S = 2.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("groups", nargs="+", metavar="GROUP")
    parser.add_argument("--watch", nargs="?", type=float, const=WATCH_S, metavar="SECONDS", help=f"again and again ({WATCH_S:g})")
    arguments.add_output(parser, "-o")
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    output = Output(options.output)
    before: tuple[float, list[dict[str, Any]]] | None = None
    with Connection(resolve(options)) as connection:
        try:
            while True:
                described, now_s = _describe(connection, options.groups), time.monotonic()
                if before is not None:
                    _add_trend(described, before[1], now_s - before[0])
                before = now_s, described
                if options.watch is not None and sys.stdout.isatty():
                    sys.stdout.write(CLEAR)
                _show(output, described)
                if options.watch is None:
                    return DONE
                sys.stdout.flush()
                time.sleep(options.watch)
        except KeyboardInterrupt:
            if options.watch is None:
                raise
            return DONE  # how a person ends what has no end


def _describe(connection: Connection, names: list[str]) -> list[dict[str, Any]]:
    groups = get_groups(connection, names)
    states = states_of(connection, groups)
    offsets: dict[str, dict[Partition, int]] = {}
    for name, own in committed(connection, groups).items():
        if isinstance(own, CommandError):
            raise own
        offsets[name] = own
    owners = {name: _owners(group) for name, group in groups.items()}
    partitions = {name: sorted({*offsets[name], *owners[name]}) for name in groups}
    ends = list_offsets(connection, sorted({each for own in partitions.values() for each in own}), latest())
    described = []
    for name, group in groups.items():
        behind = {each: offset for each, offset in offsets[name].items() if (lag_of(ends[each], offset) or 0) > 0}
        times_ms, now_ms = first_timestamps(connection, behind), time.time_ns() // 1_000_000
        described.append(
            {
                "group": name,
                "state": states[name],
                "type": type_of(group),
                "protocol": group.partition_assignor or None,
                "coordinator": group.coordinator.id,
                "members": len(group.members),
                "lag": total_lag(offsets[name], ends),
                "partitions": [
                    {
                        "topic": each[0],
                        "partition": each[1],
                        "committed_offset": offsets[name].get(each),
                        "end_offset": ends[each],
                        "lag": lag_of(ends[each], offsets[name].get(each)),
                        "lag_ms": _lag_ms(each, behind, times_ms, now_ms, offsets[name]),
                        **_member(owners[name].get(each)),
                    }
                    for each in partitions[name]
                ],
                "idle_members": [_member(member) for member in group.members if not member.assignment.topic_partitions],
            }
        )
    return described


def _add_trend(described: list[dict[str, Any]], before: list[dict[str, Any]], span_s: float) -> None:
    """How many records a second each partition falls behind, or with a sign catches up, since the last time."""
    lags = {(one["group"], each["topic"], each["partition"]): each["lag"] for one in before for each in one["partitions"]}
    for one in described:
        for each in one["partitions"]:
            then, now = lags.get((one["group"], each["topic"], each["partition"])), each["lag"]
            each["lag_per_s"] = None if then is None or now is None else round((now - then) / max(span_s, 1e-3), 1)


def _lag_ms(
    partition: Partition, behind: dict[Partition, int], times_ms: dict[Partition, int], now_ms: int, offsets: dict[Partition, int]
) -> int | None:
    """0 where all is read; None where the first record that is not read is gone, or nothing is committed."""
    if partition not in offsets:
        return None
    if partition not in behind:
        return 0
    return None if partition not in times_ms else max(now_ms - times_ms[partition], 0)


def _owners(group: Any) -> dict[Partition, Any]:
    return {(each.topic, each.partition): member for member in group.members for each in member.assignment.topic_partitions}


def _member(member: Any) -> dict[str, Any]:
    if member is None:
        return dict.fromkeys(("client_id", "host", "member_id", "instance_id"))
    return {
        "client_id": member.client_id,
        "host": member.host.lstrip("/"),
        "member_id": member.member_id,
        "instance_id": member.group_instance_id,
    }


def _show(output: Output, described: list[dict[str, Any]]) -> None:
    if output.is_data:
        output.data(described)
        return
    for one in described:
        lag = "unknown" if one["lag"] is None else thousands(one["lag"])
        protocol = f", {one['protocol']}" if one["protocol"] else ""
        output.line(f"group {one['group']}: {one['state']}, {one['type']}{protocol}, {one['members']} members, total lag {lag}")
        has_trend = any("lag_per_s" in each for each in one["partitions"])
        output.table(one["partitions"], (*PARTITIONS, TREND) if has_trend else PARTITIONS)
        if one["idle_members"]:
            output.table(one["idle_members"], IDLE)
