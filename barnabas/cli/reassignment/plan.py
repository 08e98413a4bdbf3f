"""Where replicas should lie: with few moves, on all the brokers that may have them, in several racks. Pure.

kafka-reassign-partitions --generate lays all partitions out anew, which copies nearly everything. Here a replica stays where it is unless
its broker may have none, or has at least two replicas more than another one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

Partition = tuple[str, int]
Replicas = list[int]
"""Broker ids; the first is the preferred leader."""
Assignment = dict[Partition, Replicas]


def spread(
    current: Mapping[Partition, Sequence[int]], racks: Mapping[int, str | None], replication_factor: int | None = None
) -> Assignment:
    """Replicas on the brokers of `racks` alone, by id, with their racks (None where they have none).

    The replication factor stays as it is unless it is given. `racks` has at least as many brokers."""
    planned: Assignment = {}
    for each, replicas in current.items():
        count = len(replicas) if replication_factor is None else replication_factor
        planned[each] = [broker for broker in replicas if broker in racks][:count]
    load = Counter(broker for replicas in planned.values() for broker in replicas)
    for each, replicas in planned.items():
        count = len(current[each]) if replication_factor is None else replication_factor
        while len(replicas) < count:
            chosen = min(
                (broker for broker in racks if broker not in replicas),
                key=lambda broker: (_together(replicas, broker, racks), load[broker], broker),
            )
            replicas.append(chosen)
            load[chosen] += 1
    _balance(planned, current, load, racks)
    _balance_leaders(planned)
    return planned


def _together(replicas: Sequence[int], broker: int, racks: Mapping[int, str | None]) -> int:
    """How many of `replicas` are in the rack of `broker`."""
    rack = racks[broker]
    return 0 if rack is None else sum(racks[each] == rack for each in replicas if each != broker)


def _balance(planned: Assignment, current: Mapping[Partition, Sequence[int]], load: Counter[int], racks: Mapping[int, str | None]) -> None:
    """Move replicas from the brokers with the most to those with the fewest, while two or more apart and no rack gets worse by it."""
    while True:
        move = _find_move(planned, current, load, racks)
        if move is None:
            return
        each, source, target = move
        planned[each][planned[each].index(source)] = target
        load[source] -= 1
        load[target] += 1


def _find_move(
    planned: Assignment, current: Mapping[Partition, Sequence[int]], load: Counter[int], racks: Mapping[int, str | None]
) -> tuple[Partition, int, int] | None:
    """A partition, and the brokers from and to which a replica of it goes. A replica that is new where it is comes first: it costs no copy
    more."""
    by_load = sorted(racks, key=lambda broker: (load[broker], broker))
    for target in by_load:
        for source in reversed(by_load):
            if load[source] - load[target] < 2:
                break
            found = None
            for each, replicas in planned.items():
                if source not in replicas or target in replicas:
                    continue
                others = [broker for broker in replicas if broker != source]
                if _together(others, target, racks) > _together(others, source, racks):
                    continue
                found = found or (each, source, target)
                if source not in current[each]:
                    return each, source, target
            if found:
                return found
    return None


def _balance_leaders(planned: Assignment) -> None:
    """Let each broker be the preferred leader of as many as the others, where its replicas allow it: order alone, which copies nothing."""
    leaders = Counter(replicas[0] for replicas in planned.values())
    is_better = True
    while is_better:
        is_better = False
        for replicas in planned.values():
            fewest = min(replicas, key=lambda broker: leaders[broker])
            if leaders[replicas[0]] - leaders[fewest] >= 2:
                leaders[replicas[0]] -= 1
                leaders[fewest] += 1
                index = replicas.index(fewest)
                replicas[0], replicas[index] = replicas[index], replicas[0]
                is_better = True
