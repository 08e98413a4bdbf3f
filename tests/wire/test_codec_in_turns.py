"""Goal: the encoder in pieces gives the bytes of the direct one, in every version of every message.

Method: the messages of the other wire tests, through both. Then messages of so many elements that they are
cut into pieces: the random ones are too small for that.
"""

from __future__ import annotations

from typing import Any

import pytest

from protocol.codec import encode, encode_chunks
from protocol.codec_in_turns import (
    ELEMENTS_PER_PIECE,
    GATHERED_BYTES,
    NUMBERS_PER_PIECE,
    chunks_encoder_in_turns,
    records_of,
)
from protocol.messages.fetch import FetchableTopicResponse, FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from protocol.schema import Array, Field, Kind, Message, String, message, since
from tests.support.turns import run
from tests.wire.messages import ALL_MESSAGES, name_of, populated, present_fields, random_messages, versions_of

MANY = 3 * ELEMENTS_PER_PIECE


@pytest.mark.parametrize("cls", ALL_MESSAGES, ids=name_of)
def test_random_messages_are_the_same_both_ways_and_arrays_of_many_elements_go_in_pieces(cls: type[Message]) -> None:
    for version in versions_of(cls):
        encode_in_turns = chunks_encoder_in_turns(cls, version)
        for example in random_messages(cls, version):
            assert b"".join(run(encode_in_turns(example))[0]) == encode(example, version), (version, example)
        if not (arrays := arrays_of(cls, version)):
            continue
        many = with_many_elements(cls, version, NUMBERS_PER_PIECE + 1 if all(map(is_numbers, arrays)) else MANY)

        chunks, encoded_in = run(encode_in_turns(many))

        assert b"".join(chunks) == encode(many, version), version
        assert encoded_in > 1, version


def with_many_elements(cls: type[Message], version: int, count: int) -> Any:
    """The populated message with `count` elements in each array that is not inside another, tagged ones too."""
    example = populated(cls, version)
    for field in arrays_of(cls, version):
        elements = getattr(example, field.name)
        setattr(example, field.name, [elements[place % len(elements)] for place in range(count)])
    return example


def arrays_of(cls: type[Message], version: int) -> list[Field]:
    return [field for field in present_fields(cls, version) if field.type.kind is Kind.ARRAY]


def is_numbers(field: Field) -> bool:
    return field.type.element is not None and field.type.element.kind is Kind.FIXED


def test_elements_of_inner_arrays_count_together() -> None:
    """Else many arrays of few elements each would be one piece."""
    topics = [FetchTopic(topic="t", partitions=[FetchPartition() for _ in range(4)]) for _ in range(MANY)]

    _, pieces = run(chunks_encoder_in_turns(FetchRequest, 12)(FetchRequest(topics=topics)))

    assert pieces >= 5 * MANY // (ELEMENTS_PER_PIECE + 1)


def test_records_stay_the_objects_they_are_between_pieces() -> None:
    batches = [bytes([place % 256]) * 10 for place in range(MANY)]
    partitions = [PartitionData(partition_index=place, records=memoryview(batch)) for place, batch in enumerate(batches)]
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])

    chunks, _ = run(chunks_encoder_in_turns(FetchResponse, 12)(response))

    assert [chunk for chunk in chunks if isinstance(chunk, memoryview)] == [partition.records for partition in partitions]
    assert b"".join(chunks) == b"".join(encode_chunks(response, 12))
    assert all(chunks)


def test_small_pieces_become_few_chunks() -> None:
    """Each chunk is counted and joined again on its way out: tens of thousands took 10 ms at once."""
    topics = [OffsetFetchRequestTopic(name=f"t{place}", partition_indexes=[0]) for place in range(20 * MANY)]

    chunks, pieces = run(chunks_encoder_in_turns(OffsetFetchRequest, 5)(OffsetFetchRequest(group_id="g", topics=topics)))

    assert len(chunks) <= 2 + sum(map(len, chunks)) // GATHERED_BYTES < pieces / 4


def test_records_in_a_bytearray_are_not_added_to() -> None:
    batches = [bytearray(b"batch") for _ in range(MANY)]
    partitions = [PartitionData(partition_index=place, records=batch) for place, batch in enumerate(batches)]
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])

    run(chunks_encoder_in_turns(FetchResponse, 12)(response))

    assert batches == [b"batch"] * MANY


def test_a_value_that_cannot_be_encoded_is_a_value_error_here_too() -> None:
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[2**31])]

    with pytest.raises(ValueError, match="OffsetFetchRequest v5"):
        run(chunks_encoder_in_turns(OffsetFetchRequest, 5)(OffsetFetchRequest(group_id="g", topics=topics)))


def test_a_version_that_is_not_declared_is_a_value_error_here_too() -> None:
    with pytest.raises(ValueError, match="versions"):
        chunks_encoder_in_turns(FetchResponse, 99)


def test_array_in_a_tagged_field_goes_in_pieces() -> None:
    @message(versions=(0, 0), flexible=0)
    class Tagged:
        names: Array[String] = since(0, default=[], tag=0)
        number: String = "n"

    example = Tagged(names=[str(place) for place in range(MANY)])
    encoded = encode(example, 0)

    chunks, pieces = run(chunks_encoder_in_turns(Tagged, 0)(example))

    assert b"".join(chunks) == encoded
    assert pieces > 2


def test_records_of_a_response_are_found_and_none_is_looked_for_where_none_can_be() -> None:
    partitions = [PartitionData(partition_index=index, records=memoryview(bytes([index]))) for index in range(3)]
    fetched = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions), FetchableTopicResponse(topic="u")])
    produced = ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[PartitionProduceResponse()] * MANY)])

    assert [bytes(records) for records in records_of(fetched) if records is not None] == [b"\0", b"\1", b"\2"]
    assert [*records_of(produced)] == []
