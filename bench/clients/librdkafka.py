"""The librdkafka of the confluent-kafka wheel by ctypes: only what a load needs, with a few foreign calls per thousand records.

confluent-kafka makes a Python object of every record, which would be most of the measurement. Here records are passed in arrays, delivery
reports are counted per batch, and a C function takes fetched records.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from ctypes import POINTER, Structure, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p, create_string_buffer
from importlib.util import find_spec
from pathlib import Path

PRODUCER, CONSUMER = 0, 1
PARTITION_UNASSIGNED = -1  # the partitioner chooses
OFFSET_BEGINNING, OFFSET_END = -2, -1
_EVENT_DELIVERY_REPORT, _EVENT_ERROR = 0x1, 0x8
_ERROR_TEXT_SIZE = 512


class Message(Structure):
    """rd_kafka_message_t."""

    _fields_ = (
        ("error", c_int),
        ("topic", c_void_p),
        ("partition", c_int32),
        ("payload", c_void_p),
        ("size", c_size_t),
        ("key", c_void_p),
        ("key_size", c_size_t),
        ("offset", c_int64),
        ("private", c_void_p),
    )


_SIGNATURES = {
    "conf_new": (c_void_p,),
    "conf_set": (c_int, c_void_p, c_char_p, c_char_p, c_char_p, c_size_t),
    "conf_set_events": (None, c_void_p, c_int),
    "new": (c_void_p, c_int, c_void_p, c_char_p, c_size_t),
    "destroy": (None, c_void_p),
    "err2str": (c_char_p, c_int),
    "version_str": (c_char_p,),
    "topic_new": (c_void_p, c_void_p, c_char_p, c_void_p),
    "topic_destroy": (None, c_void_p),
    "produce_batch": (c_int, c_void_p, c_int32, c_int, POINTER(Message), c_int),
    "queue_get_main": (c_void_p, c_void_p),
    "queue_new": (c_void_p, c_void_p),
    "queue_destroy": (None, c_void_p),
    "queue_poll": (c_void_p, c_void_p, c_int),
    "event_type": (c_int, c_void_p),
    "event_message_count": (c_size_t, c_void_p),
    "event_message_next": (POINTER(Message), c_void_p),
    "event_destroy": (None, c_void_p),
    "consume_start_queue": (c_int, c_void_p, c_int32, c_int64, c_void_p),
    "consume_stop": (c_int, c_void_p, c_int32),
    "consume_callback_queue": (c_int, c_void_p, c_int, c_void_p, c_void_p),
}


def _load() -> ctypes.CDLL:
    """The shared library beside the confluent_kafka package."""
    package = find_spec("confluent_kafka")
    if package is None or package.origin is None:
        raise SystemExit("confluent-kafka is missing: pip install confluent-kafka")
    folder = Path(package.origin).parent.parent / "confluent_kafka.libs"
    for other in sorted(folder.glob("lib*")):  # what librdkafka was linked with, if the wheel ships any
        if not other.name.startswith("librdkafka"):
            ctypes.CDLL(str(other), mode=ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(str(next(folder.glob("librdkafka*.so*"))))
    for name, (result, *arguments) in _SIGNATURES.items():
        function = getattr(library, f"rd_kafka_{name}")
        function.restype, function.argtypes = result, arguments
    return library


_library = _load()
# Called with each fetched message: a C function without effects, so that records are taken and freed without entering Python.
_NO_OPERATION = ctypes.cast(_library.rd_kafka_message_status, c_void_p)

VERSION: str = _library.rd_kafka_version_str().decode()


class RdKafkaError(Exception):
    """librdkafka refused a call, or a record was not delivered."""


class _Client:
    """One rd_kafka_t, destroyed at the end of the context."""

    def __init__(self, kind: int, settings: Mapping[str, str], *, events: int = 0) -> None:
        text = create_string_buffer(_ERROR_TEXT_SIZE)
        configuration = _library.rd_kafka_conf_new()
        for name, value in settings.items():
            if _library.rd_kafka_conf_set(configuration, name.encode(), value.encode(), text, len(text)):
                raise RdKafkaError(text.value.decode())
        if events:
            _library.rd_kafka_conf_set_events(configuration, events)
        self._handle = _library.rd_kafka_new(kind, configuration, text, len(text))
        if not self._handle:
            raise RdKafkaError(text.value.decode())

    def _topic(self, name: str) -> int:
        topic: int = _library.rd_kafka_topic_new(self._handle, name.encode(), None)
        return topic


class BatchProducer(_Client):
    """Sends arrays of records to one topic and counts their delivery reports."""

    def __init__(self, settings: Mapping[str, str], topic: str) -> None:
        super().__init__(PRODUCER, settings, events=_EVENT_DELIVERY_REPORT | _EVENT_ERROR)
        self._queue = _library.rd_kafka_queue_get_main(self._handle)
        self._topic_handle = self._topic(topic)
        self.sent_count = 0
        self.delivered_count = 0

    def send(self, messages: ctypes.Array[Message], count: int, partition: int = PARTITION_UNASSIGNED) -> None:
        """Enqueues the first `count` messages. Their payloads are not copied: they must live until they are delivered."""
        enqueued = _library.rd_kafka_produce_batch(self._topic_handle, partition, 0, messages, count)
        if enqueued != count:
            refused = next(message.error for message in messages[:count] if message.error)
            raise RdKafkaError(f"not enqueued: {error_text(refused)}")
        self.sent_count += count

    def poll(self, timeout_ms: int) -> int:
        """Waits for one event and returns how many records it reports delivered; raises RdKafkaError when they were not."""
        event = _library.rd_kafka_queue_poll(self._queue, timeout_ms)
        if not event:
            return 0
        try:
            if _library.rd_kafka_event_type(event) == _EVENT_ERROR:
                return 0  # the library retries, and the caller has its own time limit
            count: int = _library.rd_kafka_event_message_count(event)
            message = _library.rd_kafka_event_message_next(event)  # all messages of one report share one outcome
            if message and message.contents.error:
                raise RdKafkaError(f"not delivered: {error_text(message.contents.error)}")
            self.delivered_count += count
            return count
        finally:
            _library.rd_kafka_event_destroy(event)

    def close(self) -> None:
        _library.rd_kafka_topic_destroy(self._topic_handle)
        _library.rd_kafka_queue_destroy(self._queue)
        _library.rd_kafka_destroy(self._handle)


class BatchConsumer(_Client):
    """Reads partitions of one topic without a group and throws the records away."""

    def __init__(self, settings: Mapping[str, str], topic: str) -> None:
        super().__init__(CONSUMER, settings)
        self._topic_handle = self._topic(topic)
        self._queue = _library.rd_kafka_queue_new(self._handle)
        self._partitions: list[int] = []

    def start(self, partition: int, offset: int) -> None:
        if _library.rd_kafka_consume_start_queue(self._topic_handle, partition, offset, self._queue):
            raise RdKafkaError(f"cannot consume partition {partition}")
        self._partitions.append(partition)

    def take(self, timeout_ms: int) -> int:
        """Takes all records that have arrived, waiting for the first, and returns how many."""
        count: int = _library.rd_kafka_consume_callback_queue(self._queue, timeout_ms, _NO_OPERATION, None)
        return max(count, 0)

    def close(self) -> None:
        for partition in self._partitions:
            _library.rd_kafka_consume_stop(self._topic_handle, partition)
        _library.rd_kafka_queue_destroy(self._queue)
        _library.rd_kafka_topic_destroy(self._topic_handle)
        _library.rd_kafka_destroy(self._handle)


def error_text(code: int) -> str:
    text: bytes = _library.rd_kafka_err2str(code)
    return text.decode()
