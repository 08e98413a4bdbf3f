"""LZ4 frames as hostile or careless producers make them: the broker takes those that Kafka's readers can read, where it reads them.

BARNABAS_TEST_SERVER=kafka runs the same against Apache Kafka, which answers UNKNOWN_SERVER_ERROR for what it cannot decompress.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator

import lz4.block
import lz4.frame
import pytest

from protocol.compression import Compression
from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records import HEADER_SIZE, SimpleRecord, assemble_batch, build_batch, read_header
from tests.support.fixtures import server as server
from tests.support.lz4_frames import (
    BLOCK_CHECKSUM,
    CONTENT_CHECKSUM,
    CONTENT_SIZE,
    INDEPENDENT,
    MAGIC,
    VERSION_1,
    compressed_block,
    lz4_frame,
    stored_block,
    xxh32,
)
from tests.support.process import ServerProcess
from tests.support.wire import WireClient

IS_KAFKA = os.environ.get("BARNABAS_TEST_SERVER") == "kafka"
REFUSED = ErrorCode.UNKNOWN_SERVER_ERROR if IS_KAFKA else ErrorCode.INVALID_RECORD
TOPIC = "lz4-frames"
USUAL = VERSION_1 | INDEPENDENT
PLAIN_BATCH = bytes(build_batch([SimpleRecord(b"key", bytes(range(256)) * 400, (), 1_700_000_000_000)]))
DATA = PLAIN_BATCH[HEADER_SIZE:]
"""The records' bytes, 100 KB: two blocks of 64 KB."""
FIRST, SECOND = DATA[: 1 << 16], DATA[1 << 16 :]
TWO = [stored_block(FIRST), stored_block(SECOND)]
PACKED = [compressed_block(lz4.block.compress(part, store_size=False)) for part in (FIRST, SECOND)]
END_STORED = b"\x00\x00\x00\x80"


def frame(**fields: object) -> bytes:
    return lz4_frame(DATA, **({"blocks": TWO} | fields))  # type: ignore[arg-type]


FRAMES: dict[str, tuple[bool, bytes]] = {
    "as Kafka's clients write it": (True, frame(blocks=PACKED)),
    "stored blocks": (True, frame()),
    "blocks of 256 KB": (True, frame(block_size_code=0x50)),
    "blocks of 1 MB": (True, frame(block_size_code=0x60)),
    "blocks of 4 MB": (True, frame(block_size_code=0x70)),
    "block checksums": (True, frame(flags=USUAL | BLOCK_CHECKSUM)),
    "a content checksum": (True, frame(flags=USUAL | CONTENT_CHECKSUM)),
    "a content size": (True, frame(flags=USUAL | CONTENT_SIZE)),
    "every flag": (True, frame(flags=USUAL | BLOCK_CHECKSUM | CONTENT_SIZE | CONTENT_CHECKSUM)),
    "bytes behind the frame": (True, frame() + b"behind"),
    "a second frame behind the first": (True, frame() + lz4_frame(DATA)),
    "an empty block": (True, frame(blocks=[TWO[0], compressed_block(b"\x00"), TWO[1]])),
    "an empty last block": (True, frame(blocks=[*TWO, compressed_block(b"\x00")])),
    "a cut content checksum": (False, frame(flags=USUAL | CONTENT_CHECKSUM)[:-1]),
    "linked blocks": (False, lz4.frame.compress(DATA, block_linked=True)),
    "linked blocks of which each is independent": (False, frame(flags=VERSION_1)),
    "one block, said to be linked": (False, frame(flags=VERSION_1, block_size_code=0x50, blocks=[stored_block(DATA)])),
    "version 0": (False, frame(flags=INDEPENDENT)),
    "version 2": (False, frame(flags=INDEPENDENT | 0x80)),
    "version 3": (False, frame(flags=USUAL | 0x80)),
    "the flag of a dictionary": (False, frame(flags=USUAL | 0x01)),
    "a reserved flag": (False, frame(flags=USUAL | 0x02)),
    "a block size below 4": (False, frame(block_size_code=0x30)),
    "no block size": (False, frame(block_size_code=0x00)),
    "a reserved bit beside the block size": (False, frame(block_size_code=0x41)),
    "the reserved bit above the block size": (False, frame(block_size_code=0xC0)),
    "a wrong header checksum": (False, frame(header_checksum=0)),
    "a header checksum of old clients": (False, frame(header_checksum=xxh32(struct.pack("<IBB", MAGIC, USUAL, 0x40)) >> 8 & 0xFF)),
    "a wrong block checksum": (False, frame(flags=USUAL | BLOCK_CHECKSUM, block_checksum=1)),
    "a block that is larger than was said": (False, frame(blocks=[stored_block(DATA)])),
    "a block that decompresses to more than was said": (
        False,
        frame(blocks=[compressed_block(lz4.block.compress(DATA, store_size=False))]),
    ),
    "another magic": (False, frame(magic=MAGIC + 1)),
    "the legacy format": (False, frame(magic=0x184C2102)),
    "a skippable frame before it": (False, struct.pack("<II", 0x184D2A50, 4) + b"skip" + frame()),
    "no end mark": (False, frame(end=b"")),
    "half an end mark": (False, frame(end=b"\x00\x00")),
    "a cut block": (False, frame(end=b"")[:-1]),
    "a header alone": (False, frame(end=b"", blocks=[])),
    "a cut header": (False, frame()[:5]),
    "a cut content size": (False, frame(flags=USUAL | CONTENT_SIZE)[:10]),
    "no byte": (False, b""),
}
"""Whether Kafka reads it, and the frame."""

FRAMES_THAT_CONTRADICT_THEMSELVES = {
    "a stored end mark": frame(end=END_STORED),
    "a wrong content size": frame(flags=USUAL | CONTENT_SIZE, content_size=7),
    "a huge content size": frame(flags=USUAL | CONTENT_SIZE, content_size=2**64 - 1),
    "a wrong content checksum": frame(flags=USUAL | CONTENT_CHECKSUM, content_checksum=1),
}


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> Iterator[WireClient]:
    """A connection to a server whose topic `lz4-frames` has every batch compressed anew, and so decompressed."""
    with WireClient(server.host, server.port) as connected:
        configs = [CreatableTopicConfig(name="compression.type", value="gzip")]
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1, configs=configs)
        assert connected.request(CreateTopicsRequest(topics=[topic]), 5).topics[0].error_code == ErrorCode.NONE
        yield connected


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_is_taken_where_kafka_takes_it(client: WireClient, name: str) -> None:
    is_readable, payload = FRAMES[name]

    assert produced(client, payload) == (ErrorCode.NONE if is_readable else REFUSED)


@pytest.mark.parametrize("name", FRAMES_THAT_CONTRADICT_THEMSELVES)
def test_a_frame_that_contradicts_itself_is_refused_where_kafka_does_not_look(client: WireClient, name: str) -> None:
    assert produced(client, FRAMES_THAT_CONTRADICT_THEMSELVES[name]) == (ErrorCode.NONE if IS_KAFKA else REFUSED)


def produced(client: WireClient, payload: bytes) -> int:
    """The error code for a batch with this payload, once the topic is there."""
    batch = assemble_batch(read_header(PLAIN_BATCH)._replace(attributes=Compression.LZ4), payload)
    data = PartitionProduceData(index=0, records=memoryview(batch))
    asked = ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])])
    deadline = time.monotonic() + 30
    while True:
        code: int = client.request(asked, 9).responses[0].partition_responses[0].error_code
        if code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or time.monotonic() > deadline:
            return code
        time.sleep(0.05)  # nothing tells a client when a new topic is led
