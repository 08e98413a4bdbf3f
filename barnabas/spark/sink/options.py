"""The options of a sink, checked before anything is written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from ...protocol.compression import Compression
from ..client.cluster import Cluster, open_cluster, parse_servers
from ..client.security import SECURITY_OPTIONS, Security, read_security
from ..errors import OptionError

DEFAULT_LEDGER = "barnabas-sinks"
DEFAULT_TIMEOUT_MS = 600_000
BATCH_BYTES = 1_000_000
"""Uncompressed, below the brokers' default of max.message.bytes (1,048,588)."""
SINK_ID = re.compile(r"[A-Za-z0-9_-]{1,200}")
SERVERS, TIMEOUT = "kafka.bootstrap.servers", "kafka.transaction.timeout.ms"
COMPRESSION, BATCH_SIZE = "kafka.compression.type", "kafka.batch.size"
TIMESTAMPS, OF_COLUMN, OF_NOW = "timestamps", "column", "now"
OWNER = "df.write"
KNOWN = ("id", "topic", "ledger", TIMESTAMPS, "batch", "owner", SERVERS, TIMEOUT, COMPRESSION, BATCH_SIZE)
OF_SPARK = ("path", "checkpointlocation")
"""What Spark adds to the options itself."""


class SinkOptions(NamedTuple):
    """`sink` is the option `id`: what names the sink in its ledger and begins its transactional ids."""

    servers: str
    security: Security
    sink: str
    topic: str | None
    ledger: str
    timeout_ms: int
    batch_bytes: int
    codec: Compression
    takes_timestamps: bool = False
    """From the column `timestamp`; otherwise records have the time of writing."""
    batch: int | None = None
    """Of `df.write`: which batch of the sink this is. It is written once, as those of a stream are."""
    owner: str = OWNER
    """What stands for the query of a stream then."""

    def open(self) -> Cluster:
        """The cluster, whose connections stay open."""
        return open_cluster(self.servers, self.security)


def read_options(texts: Mapping[str, str], *, sink: str | None = None) -> SinkOptions:
    """OptionError names the option that is missing, unknown or wrong. `sink` stands for the option `id`."""
    known = {key.lower(): key for key in (*KNOWN, *SECURITY_OPTIONS)}
    options: dict[str, str] = {}
    for key, text in texts.items():
        if key.lower() in OF_SPARK:
            continue
        if key.lower() not in known:
            raise OptionError(f"unknown option {key!r}: the sink has {', '.join(KNOWN)}, and those of TLS and SASL")
        options[known[key.lower()]] = text
    servers = options.get(SERVERS, "")
    parse_servers(servers)
    name = sink if sink is not None else options.get("id")
    if name is None:
        raise OptionError("the option 'id' is missing: it names the sink, in its ledger and in its transactions, and stays for its life")
    if not SINK_ID.fullmatch(name):
        raise OptionError(f"id is {name!r}: it has at most 200 letters, digits, underscores and hyphens")
    topic = options.get("topic")
    if topic == "":
        raise OptionError("topic is empty")
    codec = options.get(COMPRESSION, "none").upper()
    if codec not in Compression.__members__:
        raise OptionError(f"{COMPRESSION} is {codec.lower()!r}: it is one of {', '.join(each.name.lower() for each in Compression)}")
    return SinkOptions(
        servers,
        read_security(options),
        name,
        topic,
        options.get("ledger", DEFAULT_LEDGER),
        _number(options, TIMEOUT, DEFAULT_TIMEOUT_MS, 1_000, 2**31 - 1),
        _number(options, BATCH_SIZE, BATCH_BYTES, 1_000, 1 << 30),
        Compression[codec],
        _takes_timestamps(options),
        _number(options, "batch", 0, 0, 2**62) if "batch" in options else None,
        options.get("owner", OWNER),
    )


def _takes_timestamps(options: Mapping[str, str]) -> bool:
    text = options.get(TIMESTAMPS, OF_NOW)
    if text not in (OF_COLUMN, OF_NOW):
        raise OptionError(f"{TIMESTAMPS} is {text!r}: it is {OF_NOW} or {OF_COLUMN}")
    return text == OF_COLUMN


def _number(options: Mapping[str, str], key: str, default: int, lowest: int, highest: int) -> int:
    text = options.get(key, str(default))
    if not text.strip().isdigit() or not lowest <= int(text) <= highest:
        raise OptionError(f"{key} is {text!r}: it is a whole number from {lowest} to {highest}")
    return int(text)
