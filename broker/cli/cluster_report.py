"""The report of `barnabas cluster status` as text: a summary, the brokers, the quorum, and the partitions that need a look."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

PARTITIONS_SHOWN_MAX = 50
TROUBLES = {"under_replicated": "under-replicated", "under_min_isr": "under min ISR", "offline": "offline"}


def to_text(report: dict[str, Any]) -> str:
    """Lines for a person; what is not known is a dash."""
    troubles = ", ".join(f"{len(report[key])} {name}" for key, name in TROUBLES.items())
    lines = [
        f"cluster {report['cluster_id']}",
        f"{len(report['brokers'])} brokers, {report['topics']} topics, {len(report['partitions'])} partitions: {troubles}",
        "",
        *_table(
            ("broker", "address", "rack", "state", "leaders", "replicas", "out of sync", "lag"),
            [
                (
                    broker["id"],
                    f"{broker['host']}:{broker['port']}",
                    broker["rack"],
                    "fenced" if broker["is_fenced"] else "alive",
                    broker["leaders"],
                    broker["replicas"],
                    broker["out_of_sync"],
                    broker["lag"],
                )
                for broker in report["brokers"]
            ],
        ),
        "",
        *_quorum(report["quorum"]),
    ]
    troubled = [each for each in report["partitions"] if each["is_under_replicated"] or each["is_offline"]]
    if troubled:
        lines += ["", *_partitions(troubled[:PARTITIONS_SHOWN_MAX])]
    if len(troubled) > PARTITIONS_SHOWN_MAX:
        lines.append(f"and {len(troubled) - PARTITIONS_SHOWN_MAX} more; --json has all")
    return "\n".join(lines)


def _quorum(quorum: dict[str, Any] | None) -> list[str]:
    if quorum is None:
        return ["quorum: not told by this broker; --bootstrap-controller asks a controller"]
    replicas = [(each, "leader" if each["id"] == quorum["leader_id"] else "voter") for each in quorum["voters"]]
    replicas += [(each, "observer") for each in quorum["observers"]]
    return [
        f"quorum: epoch {quorum['leader_epoch']}, controller {_id(quorum['leader_id'])}, high watermark {quorum['high_watermark']}",
        *_table(("node", "role", "log end", "lag"), [(each["id"], role, each["log_end_offset"], each["lag"]) for each, role in replicas]),
    ]


def _partitions(partitions: Sequence[dict[str, Any]]) -> list[str]:
    rows = []
    for each in partitions:
        problem = "offline" if each["is_offline"] else "under min ISR" if each["is_under_min_isr"] else "under-replicated"
        lags = " ".join(f"{replica}:{'-' if lag is None else lag}" for replica, lag in each["lags"].items())
        rows.append((f"{each['topic']}-{each['partition']}", problem, _id(each["leader"]), _ids(each["replicas"]), _ids(each["isr"]), lags))
    return _table(("partition", "problem", "leader", "replicas", "ISR", "lag by replica"), rows)


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    texts = [heads, *([("-" if cell is None else str(cell)) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in texts) for column in range(len(heads))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in texts]


def _id(node_id: int) -> str:
    return "none" if node_id < 0 else str(node_id)


def _ids(node_ids: Sequence[int]) -> str:
    return ",".join(map(str, node_ids)) or "none"
