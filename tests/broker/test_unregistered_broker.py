"""A broker that is unregistered while it lives: it serves again by itself."""

from __future__ import annotations

from pathlib import Path

from protocol.errors import ErrorCode
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.unregister_broker import UnregisterBrokerRequest
from tests.support.broker import BrokerProcess
from tests.support.quorum import until
from tests.support.wire import WireClient


def test_a_broker_that_lives_is_registered_anew(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    broker.start()
    try:
        with WireClient(broker.host, broker.port) as client:
            ask = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=True)
            until(lambda: client.request(ask, 12).topics[0].error_code == ErrorCode.NONE, "the topic is made")
            (listed,) = client.request(ask, 12).brokers

            answer = client.request(UnregisterBrokerRequest(broker_id=listed.node_id), 0)

            assert answer.error_code == ErrorCode.NONE
            until(lambda: [each.node_id for each in client.request(ask, 12).brokers] == [listed.node_id], "the broker is listed again")
            until(lambda: client.request(ask, 12).topics[0].partitions[0].leader_id == listed.node_id, "it leads again")
    finally:
        broker.kill()
