"""Which topics a request means: duplicates, and DeleteTopics' names and ids. Pure; in steps, for a request may name 100,000.

Source: ControllerApis.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any, TypeVar

from broker.controller.controller_result import Steps, check_records_count
from broker.loop.pieces import Pace, pieces
from broker.loop.turns import PIECE_ELEMENTS
from broker.metadata.cluster_state import ClusterState
from protocol.errors import ErrorCode
from protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest
from protocol.uuids import ZERO_UUID

COMPARED_PIECE_ELEMENTS = 500
"""Names or ids compared with the others before others have their turn, 0.1 µs each."""

Element = TypeVar("Element")


def find_duplicates(elements: Sequence[Any], identity: Callable[[Any], Any]) -> Steps[dict[Any, None]]:
    """What identifies more than one of the elements, in order: the keys of what is returned."""
    seen: dict[Any, None] = {}
    duplicates: dict[Any, None] = {}
    for piece in pieces(elements, COMPARED_PIECE_ELEMENTS):
        for value in map(identity, piece):
            if value in seen:
                duplicates[value] = None
            seen[value] = None
        if len(piece) == COMPARED_PIECE_ELEMENTS:
            yield []
    while len(seen) > COMPARED_PIECE_ELEMENTS:  # freed at once, 95,000 pairs take 20 ms
        for _ in range(COMPARED_PIECE_ELEMENTS):
            seen.popitem()
        yield []
    return duplicates


def check_partitions_count(topics: Sequence[Any]) -> Steps[None]:
    """Raises KafkaError POLICY_VIOLATION when the topics name more partitions than an operation may change."""
    partitions_count = 0
    for piece in pieces(topics, COMPARED_PIECE_ELEMENTS):
        partitions_count += sum(len(topic.partitions) for topic in piece)
        check_records_count(partitions_count)
        if len(piece) == COMPARED_PIECE_ELEMENTS:
            yield []


def without(elements: Sequence[Element], names: Container[str]) -> Steps[list[Element]]:
    """The elements whose name is none of `names`."""
    others: list[Element] = []
    for piece in pieces(elements, COMPARED_PIECE_ELEMENTS):
        others += [element for element in piece if element.name not in names]  # type: ignore[attr-defined]
        if len(piece) == COMPARED_PIECE_ELEMENTS:
            yield []
    return others


def topics_to_delete(state: ClusterState, request: DeleteTopicsRequest, results: list[DeletableTopicResult]) -> Steps[dict[bytes, str]]:
    """The topics that the request names, by id. What it names wrongly is answered in `results`."""

    def refuse(name: str | None, topic_id: bytes, code: ErrorCode, why: str) -> None:
        results.append(failed_deletion(name, topic_id, code, why))

    names, ids = yield from _names_and_ids(request, refuse)
    duplicate_names = yield from find_duplicates(names, str)
    duplicate_ids = yield from find_duplicates(ids, bytes)
    pace = Pace()
    for name in duplicate_names:
        refuse(name, ZERO_UUID, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        if pace.is_due():
            yield []
    for topic_id in duplicate_ids:
        refuse(None, topic_id, ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
        if pace.is_due():
            yield []
    doomed: dict[bytes, str] = {}
    for id_piece in pieces(ids):
        for topic_id in id_piece:
            found = state.topics_by_id.get(topic_id)
            if topic_id in duplicate_ids:
                continue
            if found is None:
                refuse(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
            else:
                doomed[topic_id] = found.name
        if len(id_piece) == PIECE_ELEMENTS:
            yield []
    for name_piece in pieces(names):
        for name in name_piece:
            found = state.topics.get(name)
            if name in duplicate_names:
                continue
            if found is None:
                refuse(name, ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
            elif found.topic_id in doomed or found.topic_id in duplicate_ids:
                doomed.pop(found.topic_id, None)
                why = "The provided topic name maps to an ID that was already supplied."
                refuse(name, found.topic_id, ErrorCode.INVALID_REQUEST, why)
            else:
                doomed[found.topic_id] = name
        if len(name_piece) == PIECE_ELEMENTS:
            yield []
    return doomed


def _names_and_ids(
    request: DeleteTopicsRequest, refuse: Callable[[str | None, bytes, ErrorCode, str], None]
) -> Steps[tuple[list[str], list[bytes]]]:
    names = list(request.topic_names)
    ids = []
    for piece in pieces(request.topics):
        for topic in piece:
            if topic.name is not None and topic.topic_id != ZERO_UUID:
                why = "You may not specify both topic name and topic id."
                refuse(topic.name, topic.topic_id, ErrorCode.INVALID_REQUEST, why)
            elif topic.name is not None:
                names.append(topic.name)
            elif topic.topic_id != ZERO_UUID:
                ids.append(topic.topic_id)
            else:
                refuse(None, ZERO_UUID, ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
        if len(piece) == PIECE_ELEMENTS:
            yield []
    return names, ids


def failed_deletion(name: str | None, topic_id: bytes, code: ErrorCode, message: str) -> DeletableTopicResult:
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message)
