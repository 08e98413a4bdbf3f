"""The encoder for messages of very many elements: the same bytes as protocol/codec.py, in pieces.

The configs of 9,500 topics take 0.4 s to encode. The functions made here are generators that yield after every ELEMENTS_PER_PIECE elements,
so that the loop can serve other requests in between. Their source is written by the class that writes the direct functions; only the
loops over arrays differ.

Compiled at first use: most brokers never see such a message.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from functools import cache
from typing import Any, TypeAlias

from .codec import Encoding
from .schema import Field, FieldType, Kind, Message, Records, schema_of

EncoderInTurns: TypeAlias = Callable[[Any], Generator[None, None, list[Records]]]

ELEMENTS_PER_PIECE = 64
"""20 to 60 µs usually."""

GATHERED_BYTES = 32 * 1024
"""Size from which on a chunk is not added to: 64 elements may be a kilobyte, and a response would have ten thousand chunks."""

NUMBERS_PER_PIECE = 4096
"""Of an array of plain numbers, which cost 20 ns each."""


def chunks_encoder_in_turns(cls: type[Any], version: int) -> EncoderInTurns:
    """Returns the compiled `encode_chunks(message)` of one version: a generator that returns more, smaller chunks with the same bytes.

    The message must stay as it is until the generator has ended.
    """
    encoders = schema_of(cls).encoders_in_turns
    if version not in encoders:
        encoders[version] = _EncodingInTurns(cls, version).compile()
    return encoders[version]


def records_of(message: Message) -> Iterator[Records | None]:
    """The fields of type Records in a message, whose holder has to release what is in them if it is not sent. None between two of them
    says no more than that a while has passed."""
    for field in _fields_with_records(type(message)):  # type: ignore[arg-type]
        value = getattr(message, field.name)
        if field.type.kind is Kind.RECORDS:
            yield value
        elif isinstance(value, Message):
            yield from records_of(value)
        else:
            for item in value or ():
                yield from records_of(item)
                yield None


@cache
def _fields_with_records(cls: type[Message]) -> tuple[Field, ...]:
    """Those that are Records or have them inside. Most messages have none and need no walk."""

    def has_records(field_type: FieldType | None) -> bool:
        if field_type is None:
            return False
        inside = field_type.cls is not None and bool(_fields_with_records(field_type.cls))  # type: ignore[arg-type]
        return field_type.kind is Kind.RECORDS or inside or has_records(field_type.element)

    return tuple(field for field in schema_of(cls).fields if has_records(field.type))


class _Gathered(bytearray):
    """A chunk of the encoder's own, to which it may add. Records may be a bytearray too."""

    __slots__ = ()


def _gather(chunks: list[Any], data: bytes) -> None:
    """Put `data` behind what the chunks hold."""
    last = chunks[-1] if chunks else None
    if type(last) is _Gathered and len(last) < GATHERED_BYTES:
        last += data
    else:
        chunks.append(_Gathered(data))


class _EncodingInTurns(Encoding):
    """`k` counts the elements down to the next yield. What was written before a yield goes into the chunks, unless it is part of a tagged
    field."""

    def begin(self) -> None:
        self.line(f"k = {ELEMENTS_PER_PIECE}")
        self.line("if 0: yield")

    def element(self) -> None:
        self.line("k -= 1")
        with self.block("if k < 0:"):
            self.line(f"k = {ELEMENTS_PER_PIECE}")
            if self.out == "out":
                self.line(f"if out: {self.bind('gather', _gather)}(chunks, join(out)); out.clear()")
            self.line("yield")

    def numbers(self, element: FieldType, items: str) -> None:
        values, start = self.name("v"), self.name("n")
        self.line(f"{values} = {items}")
        with self.block(f"for {start} in range(0, len({values}), {NUMBERS_PER_PIECE}):"):
            self.line(f"if {start}: yield")
            piece = f"{values}[{start} : {start} + {NUMBERS_PER_PIECE}]"
            self.line(f'write_{self.out}(pack(">" + "{element.code}" * len({piece}), *{piece}))')

    def fold_loop(self, start: int, item: str, items: str) -> None:
        """A comprehension cannot yield."""
