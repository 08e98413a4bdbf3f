"""Records of a coordinator's log. One table says for each record type how it is encoded and which method replays it.

A record's key is an int16, the type, and the key's message. Its value is an int16, the version, and the value's message. A null value is
a tombstone. `__consumer_offsets`, `__transaction_state` and `__share_group_state` all have this format.

Source: org.apache.kafka.coordinator.common.runtime.CoordinatorRecord, CoordinatorRecordSerde and CoordinatorResult.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, NamedTuple, TypeVar

from protocol.codec import chunks_encoder, decode, encode
from protocol.errors import DecodeError, ErrorCode
from protocol.messages.stored.version_prefix import VERSION, decode_with_version
from protocol.records import SimpleRecord
from protocol.schema import schema_of

Machine = TypeVar("Machine")

KEY_VERSION = 0
"""The version of every key's message. The number before a key on disk is the record's type, not a version."""

NO_PRODUCER_ID = -1

Replay = Callable[[Any, Any, int], None]
"""Applies a record: key, value (None for a tombstone), and the producer whose open transaction it belongs to, or NO_PRODUCER_ID."""


class CoordinatorRecord:
    """One change of durable state: a key and a value of one RecordType. The value None is a tombstone, which deletes the key's state."""

    __slots__ = ("key", "value")

    def __init__(self, key: Any, value: Any | None) -> None:
        self.key = key
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CoordinatorRecord) and (self.key, self.value) == (other.key, other.value)


class CoordinatorResult(NamedTuple):
    """The result of an operation on a coordinator's state: records to append, and callbacks.

    The records are replayed when they are appended. `on_replayed` is called then, to set up soft state; it writes nothing.
    `on_committed(NONE)` says that the records are committed. An error says that they were not appended, or that their fate is unknown:
    the write timeout may have passed. `on_outcome` is called exactly once, after `on_committed`, when the records' fate is known: with
    NONE when they are committed, with an error when they were refused or lost, or the shard has ended. The write timeout does not call it.
    """

    records: list[CoordinatorRecord]
    on_committed: Callable[[ErrorCode], None]
    on_replayed: Callable[[], None] | None = None
    on_outcome: Callable[[ErrorCode], None] | None = None


class UnknownRecordTypeError(Exception):
    """The table does not have the record's type. A later version wrote it, perhaps before a downgrade."""


class RecordType(Generic[Machine]):
    """One row of a coordinator's table.

    `key_class`'s schema has the type's number. `value_version` returns the version in which to write a value. `owner` is the method of a
    state machine that replays these records. `encode_key` makes a record's whole key, if there is a faster way than the codec.
    `older_numbers` are read and never written."""

    __slots__ = ("_encode_key", "_value_encoders", "key_class", "older_numbers", "owner", "value_class", "value_version")

    def __init__(
        self,
        key_class: type[Any],
        value_class: type[Any],
        value_version: Callable[[Any], int],
        owner: Callable[[Machine], Replay],
        encode_key: Callable[[Any], bytes] | None = None,
        older_numbers: tuple[int, ...] = (),
    ) -> None:
        self.key_class = key_class
        self.value_class = value_class
        self.value_version = value_version
        self.owner = owner
        self.older_numbers = older_numbers
        self._encode_key = encode_key
        self._value_encoders: dict[int, Callable[[Any], bytes]] = {}  # by version

    @property
    def numbers(self) -> tuple[int, ...]:
        return (_number_of(self.key_class), *self.older_numbers)

    def encode_key(self, key: Any) -> bytes:
        """The type, then the message."""
        if self._encode_key is None:
            self._encode_key = _prefixed_encoder(_number_of(self.key_class), self.key_class, KEY_VERSION)
        return self._encode_key(key)

    def encode_value(self, value: Any) -> bytes:
        """The version, then the message."""
        version = self.value_version(value)
        encode = self._value_encoders.get(version)
        if encode is None:
            encode = self._value_encoders[version] = _prefixed_encoder(version, self.value_class, version)
        return encode(value)

    def decode_value(self, value: bytes) -> Any:
        """The message. DecodeError for a malformed one."""
        return decode_with_version(self.value_class, value)[0]


class RecordTable(Generic[Machine]):
    """The record types of one topic. `load_more` returns rows that a broker may never need. It is called at the first record of a type
    that is not among `rows`."""

    def __init__(self, rows: Iterable[RecordType[Machine]], load_more: Callable[[], Iterable[RecordType[Machine]]] | None = None) -> None:
        self._by_number: dict[int, RecordType[Machine]] = {}
        self._by_key: dict[type[Any], RecordType[Machine]] = {}
        self._load_more = load_more
        self._add(rows)

    def _add(self, rows: Iterable[RecordType[Machine]]) -> None:
        for row in rows:
            self._by_key[row.key_class] = row
            self._by_number.update(dict.fromkeys(row.numbers, row))

    def _add_more(self) -> None:
        load_more, self._load_more = self._load_more, None
        if load_more is not None:
            self._add(load_more())

    def row_of(self, key_class: type[Any]) -> RecordType[Machine]:
        """The row of the records with keys of that class."""
        if key_class not in self._by_key:
            self._add_more()
        return self._by_key[key_class]

    def encode(self, record: CoordinatorRecord, now_ms: int) -> SimpleRecord:
        """The record as it is stored. ValueError if a value does not fit into its stored field."""
        key, value = record.key, record.value
        row = self.row_of(type(key))
        return SimpleRecord(row.encode_key(key), None if value is None else row.encode_value(value), timestamp=now_ms)

    def decode(self, key: bytes | None, value: bytes | None) -> CoordinatorRecord:
        """The stored record. UnknownRecordTypeError, or DecodeError for a malformed one."""
        if key is None or len(key) < VERSION.size:
            raise DecodeError("the key of a coordinator's record has no type")
        number = VERSION.unpack_from(key)[0]
        if number not in self._by_number:
            self._add_more()
        row = self._by_number.get(number)
        if row is None:
            raise UnknownRecordTypeError(number)
        record_key = decode(row.key_class, KEY_VERSION, key, VERSION.size)[0]
        return CoordinatorRecord(record_key, None if value is None else row.decode_value(value))

    def bind(self, machine: Machine) -> dict[type[Any], Replay]:
        """The method that replays the records of each class of keys. It is looked up at the first such record."""
        return _Owners(self, machine)


class _Owners(dict[type[Any], Replay], Generic[Machine]):
    """The replay methods of one state machine, by the class of keys."""

    def __init__(self, table: RecordTable[Machine], machine: Machine) -> None:
        self._table = table
        self._machine = machine

    def __missing__(self, key_class: type[Any]) -> Replay:
        self[key_class] = owner = self._table.row_of(key_class).owner(self._machine)
        return owner


def encode_key(key: object) -> bytes:
    """The type, then the message, without a kept encoder: for a key that is encoded once."""
    return VERSION.pack(_number_of(type(key))) + encode(key, KEY_VERSION)


def _prefixed_encoder(number: int, cls: type[Any], version: int) -> Callable[[Any], bytes]:
    """Encodes messages of a class after an int16. The codec is looked up once, because the look-up is half the cost of a small message."""
    prefix, encode_chunks = VERSION.pack(number), chunks_encoder(cls, version)

    def encode_prefixed(message: Any) -> bytes:
        (encoded,) = encode_chunks(message)  # one chunk: no message of a coordinator's log has a field of Records
        return prefix + encoded  # type: ignore[no-any-return]

    return encode_prefixed


def _number_of(key_class: type[Any]) -> int:
    number = schema_of(key_class).key
    assert number is not None, f"{key_class.__name__} is no key"
    return number
