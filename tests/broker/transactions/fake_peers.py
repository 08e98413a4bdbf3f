"""Connections to other brokers that note WriteTxnMarkers and answer when a test says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.cluster.peer_connections import PeerConnections
from broker.network.client import PeerConnection
from broker.network.peer_requests import OnAnswer
from protocol import codec
from protocol.errors import ErrorCode
from protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.support.doubles import stands_for

VERSION = 2


class SentRequest:
    """A request that is not answered yet, as it arrived at `host`."""

    def __init__(self, host: str, message: WriteTxnMarkersRequest, on_answer: OnAnswer) -> None:
        self.host = host
        self.message = codec.decode(WriteTxnMarkersRequest, VERSION, codec.encode(message, VERSION))[0]
        self._on_answer: OnAnswer | None = on_answer

    @property
    def partitions(self) -> list[str]:
        """`producer topic-partition` of each marker."""
        return [
            f"{marker.producer_id} {topic.name}-{index}"
            for marker in self.message.markers
            for topic in marker.topics
            for index in topic.partition_indexes
        ]

    def answer(self, errors: Mapping[str, ErrorCode] | None = None) -> None:
        """NONE for each marker, but for those that `errors` names as `partitions` does."""
        results = []
        for marker in self.message.markers:
            topics = []
            for topic in marker.topics:
                codes = [(errors or {}).get(f"{marker.producer_id} {topic.name}-{index}", 0) for index in topic.partition_indexes]
                partitions = [
                    WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                    for index, code in zip(topic.partition_indexes, codes, strict=True)
                ]
                topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=partitions))
            results.append(WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics))
        self.respond(WriteTxnMarkersResponse(markers=results))

    def fail_all(self, error: ErrorCode) -> None:
        self.answer(dict.fromkeys(self.partitions, error))

    def lose(self) -> None:
        """The connection ends."""
        self.respond(None)

    def respond(self, response: WriteTxnMarkersResponse | None) -> None:
        on_answer, self._on_answer = self._on_answer, None
        if on_answer is not None:
            on_answer(response)


@stands_for(PeerConnection)
class FakeConnection:
    def __init__(self, host: str, requests: list[SentRequest]) -> None:
        self._host = host
        self._requests = requests

    def send(self, message: Any, on_answer: OnAnswer, *, version: int | None = None, timeout_ms: int | None = None) -> None:
        self._requests.append(SentRequest(self._host, message, on_answer))


@stands_for(PeerConnections, own=("requests", "take"))
class FakePeers:
    """`requests` are all that were sent, in order."""

    def __init__(self) -> None:
        self.requests: list[SentRequest] = []
        self.dropped: list[str] = []
        self.is_closed = False

    def get(self, host: str, port: int) -> FakeConnection:
        return FakeConnection(host, self.requests)

    def drop(self, host: str, port: int) -> None:
        self.dropped.append(host)
        for request in self.requests:
            if request.host == host:
                request.lose()

    async def close(self) -> None:
        self.is_closed = True
        for request in self.requests:
            request.lose()

    def take(self) -> SentRequest:
        """The oldest request, which there must be; `requests` has it no more."""
        return self.requests.pop(0)
