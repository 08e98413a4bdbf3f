"""How far groups are behind in time: now less the timestamp of the first record that is not read, which is read from the log."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from barnabas.cli.errors import CommandError
from barnabas.cli.group.waiting_since import first_timestamps
from barnabas.console.facts import Group, Partition, Snapshot
from barnabas.console.watcher import Watcher

PARTITIONS_MAX = 200
"""Of which a record is read for one page: of a group with more, those with the largest lag."""


def lags_ms(watcher: Watcher, offsets: Mapping[Partition, int], snapshot: Snapshot) -> dict[Partition, int]:
    """Of partitions that are behind; without those whose record is gone, and without all if brokers refuse."""
    behind = {each: offset for each, offset in offsets.items() if snapshot.ends.get(each, offset) > offset}
    worst = sorted(behind, key=lambda each: behind[each] - snapshot.ends[each])[:PARTITIONS_MAX]
    try:
        found = watcher.ask(lambda connection: first_timestamps(connection, {each: behind[each] for each in worst}))
    except (CommandError, OSError):
        return {}
    now_ms = time.time_ns() // 1_000_000
    return {each: max(now_ms - since_ms, 0) for each, since_ms in found.items()}


def worst_lags_ms(watcher: Watcher, groups: Sequence[Group], snapshot: Snapshot) -> dict[str, int]:
    """Of each group by its partition with the largest lag. Groups that wait for the same record ask for it once."""
    worst: dict[str, tuple[Partition, int]] = {}
    for group in groups:
        behind = {each: offset for each, offset in group.offsets.items() if snapshot.ends.get(each, offset) > offset}
        if behind:
            partition = max(behind, key=lambda each: snapshot.ends[each] - behind[each])
            worst[group.name] = partition, behind[partition]
    found: dict[tuple[Partition, int], int] = {}
    # A consumer reads a partition from one place: groups at different places of it are asked for one after another.
    left = set(worst.values())
    for _ in range(3):
        asked = dict(left)
        for partition, lag_ms in lags_ms(watcher, asked, snapshot).items():
            found[partition, asked[partition]] = lag_ms
        left -= set(asked.items())
        if not left:
            break
    return {name: found[key] for name, key in worst.items() if key in found}
