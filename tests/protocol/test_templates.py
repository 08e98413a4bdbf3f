"""A filled template is, byte for byte, what the codec makes of the same message."""

from __future__ import annotations

import struct

import pytest

from protocol import codec
from protocol.apis import APIS, Api
from protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from protocol.templates import (
    JOINED_SIZE_MAX,
    RECORDS_SPECIMEN,
    Hole,
    PreparedRecordsResponse,
    PreparedResponse,
    compile_records_template,
    compile_template,
)

PRODUCE, FETCH = APIS[0], APIS[1]
INDEX, BASE_OFFSET, LOG_START_OFFSET = Hole(0x7EA1C3D5, 4), Hole(0x7EB2D4E6F8091A2B, 8), Hole(0x7ED4F6081B2C3D4E, 8)


def response(index: int, base_offset: int, log_start_offset: int) -> ProduceResponse:
    partition = PartitionProduceResponse(index=index, base_offset=base_offset, log_start_offset=log_start_offset)
    return ProduceResponse(responses=[TopicProduceResponse(name="orders", partition_responses=[partition])])


@pytest.mark.parametrize("version", range(5, 13))
def test_filled_as_the_codec_encodes(version: int) -> None:
    specimen = response(INDEX.specimen, BASE_OFFSET.specimen, LOG_START_OFFSET.specimen)
    template = compile_template(PRODUCE, version, specimen, [INDEX, BASE_OFFSET, LOG_START_OFFSET])

    for values in ((0, 0, 0), (5, 2**62, 17), (2**31 - 1, 2**63 - 1, -1), (INDEX.specimen, 1, 2)):
        (frame,) = PreparedResponse(template, values).to_chunks(77)

        assert frame == framed(PRODUCE, version, response(*values)), values


def test_a_number_that_is_there_twice_is_refused() -> None:
    specimen = response(INDEX.specimen, INDEX.specimen, INDEX.specimen)

    with pytest.raises(ValueError, match="once"):
        compile_template(PRODUCE, 7, specimen, [INDEX])


def test_a_field_that_the_version_does_not_carry_is_refused() -> None:
    specimen = response(INDEX.specimen, BASE_OFFSET.specimen, LOG_START_OFFSET.specimen)

    with pytest.raises(ValueError, match="once"):
        compile_template(PRODUCE, 4, specimen, [INDEX, BASE_OFFSET, LOG_START_OFFSET])


@pytest.mark.parametrize("version", range(4, 18))
def test_records_leave_between_the_bytes_that_the_codec_puts_around_them(version: int) -> None:
    """With a throttle time and without."""

    def message(high_watermark: int, records: bytes, **fields: int) -> FetchResponse:
        partition = PartitionData(high_watermark=high_watermark, records=records)
        return FetchResponse(responses=[FetchableTopicResponse(topic="orders", partitions=[partition])], **fields)

    template = compile_records_template(FETCH, version, message(BASE_OFFSET.specimen, RECORDS_SPECIMEN), [BASE_OFFSET])

    for size in (0, 1, 126, 127, JOINED_SIZE_MAX, JOINED_SIZE_MAX + 1, 1_000_000):
        records = bytes(size)
        encoded = PreparedRecordsResponse(template, (2**40,), records, len(records))
        for chunks, throttle_time_ms in ((encoded.to_chunks(77), 0), (encoded.throttled(1_234).to_chunks(77), 1_234)):
            assert b"".join(chunks) == framed(FETCH, version, message(2**40, records, throttle_time_ms=throttle_time_ms)), size
            assert len(chunks) == 1 if size <= JOINED_SIZE_MAX else chunks[1] is records
            assert b"" not in chunks, size


@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_a_throttle_time_is_set_in_what_was_prepared(version: int) -> None:
    def message(base_offset: int, **fields: int) -> ProduceResponse:
        partition = PartitionProduceResponse(base_offset=base_offset)
        return ProduceResponse(responses=[TopicProduceResponse(name="orders", partition_responses=[partition])], **fields)

    prepared = PreparedResponse(compile_template(PRODUCE, version, message(BASE_OFFSET.specimen), [BASE_OFFSET]), (17,))

    (plain,), (throttled,) = prepared.to_chunks(77), prepared.throttled(1_234).to_chunks(77)
    (again,) = prepared.throttled(1).throttled(1_234).to_chunks(77)

    assert throttled == again == framed(PRODUCE, version, message(17, throttle_time_ms=1_234))
    assert plain == framed(PRODUCE, version, message(17)), "the other one is not touched"


def framed(api: Api, version: int, message: ProduceResponse | FetchResponse) -> bytes:
    body = struct.pack(">i", 77) + bytes(api.response_header_version(version)) + codec.encode(message, version)
    return struct.pack(">i", len(body)) + body
