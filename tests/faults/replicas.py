"""Whether the replicas of a partition hold the same batches, read from their files while their brokers run.

Compared is from the highest log start to `end_offset` (exclusive): a high watermark that every replica has reached. Segments may be cut
differently on each node, so what counts are batches: the same bytes at the same offsets.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

from protocol.records import iterate_headers
from tests.support.cluster import Cluster

DIGEST_BYTES = 8


def differences(cluster: Cluster, topic: str, end_offsets: Mapping[int, int]) -> list[str]:
    """What differs between the replicas of each partition, in words; empty if they are equal."""
    found: list[str] = []
    for partition, end_offset in end_offsets.items():
        replicas = cluster.partition(topic, partition).replica_nodes
        logs = {node_id: batches(cluster.nodes[node_id].data_dir / f"{topic}-{partition}", end_offset) for node_id in replicas}
        found += [f"{topic}-{partition}: {difference}" for difference in compare(logs)]
    return found


def batches(directory: Path, end_offset: int) -> dict[int, bytes]:
    """A digest of each whole batch below `end_offset`, by base offset. A file that is deleted meanwhile counts as gone."""
    found: dict[int, bytes] = {}
    for path in sorted(directory.glob("*.log")):
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            continue
        for position, header in iterate_headers(data):
            if header.base_offset >= end_offset:
                break
            found[header.base_offset] = blake2b(data[position : position + header.size_bytes], digest_size=DIGEST_BYTES).digest()
    return found


def compare(logs: Mapping[int, Mapping[int, bytes]]) -> list[str]:
    """Where the logs of these nodes differ, from the highest first offset on: one line for each node that differs from the first."""
    start = max((min(log) for log in logs.values() if log), default=0)
    (first_id, first), *others = sorted(logs.items())
    found = []
    for node_id, log in others:
        offsets = sorted(offset for offset in {*first, *log} if offset >= start and first.get(offset) != log.get(offset))
        if offsets:
            where = offsets[0]
            missing = [name for name, each in ((first_id, first), (node_id, log)) if where not in each]
            what = f"missing on node {missing[0]}" if missing else "other bytes"
            found.append(f"nodes {first_id} and {node_id} differ at {len(offsets)} batches, first at offset {where}: {what}")
    return found
