"""The descriptor limit: raised at the start, and no client can use it up with topics."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.descriptors import OPEN_SEGMENTS_MAX, divide_descriptors
from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.metadata import MetadataRequest
from tests.support.broker import BrokerProcess
from tests.support.wire import WireClient

LIMIT = 256


class FewDescriptors(BrokerProcess):
    """A broker whose hard limit is low, the soft one lower."""

    limit = LIMIT

    def command(self) -> list[str]:
        return ["bash", "-c", f'ulimit -Sn 100 && ulimit -Hn {self.limit} && exec "$@"', "bash", *super().command()]


class MoreDescriptors(FewDescriptors):
    limit = 4096


def test_shares_fit_into_the_limit() -> None:
    for limit in (256, 1024, 4096, 20_000, 1_048_576):
        shares = divide_descriptors(limit)
        assert shares.partitions + shares.connections + 3 * shares.open_segments < limit
        assert shares.open_segments <= OPEN_SEGMENTS_MAX


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the kernel tells of the table in /proc")
def test_the_table_has_room_from_the_start(tmp_path: Path) -> None:
    server = MoreDescriptors(tmp_path / "data").start()
    status = Path(f"/proc/{server.pid}/status").read_text()
    assert server.stop() == 0

    sizes = [int(line.split()[1]) for line in status.splitlines() if line.startswith("FDSize:")]
    assert sizes == [MoreDescriptors.limit]


def test_topics_beyond_the_limit_are_refused_and_the_broker_goes_on(tmp_path: Path) -> None:
    server = FewDescriptors(tmp_path / "data").start()
    with WireClient(server.host, server.port) as client:
        codes = [
            client.request(CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=count, replication_factor=1)]), 7)
            .topics[0]
            .error_code
            for name, count in (("fits", 120), ("flood", 1000), ("a-few-more", 9))
        ]
        topics = client.request(MetadataRequest(topics=None), 9).topics
    assert server.stop() == 0

    assert codes == [ErrorCode.NONE, ErrorCode.POLICY_VIOLATION, ErrorCode.POLICY_VIOLATION]
    assert [len([p for p in topic.partitions if p.error_code == 0]) for topic in topics] == [120]
