"""Messages to bytes and back: the only file that knows how a declared message looks on the wire.

For each (class, version) one flat function to decode and one to encode are written as Python source and compiled at first use: nested
structs are inlined, neighbouring fixed-width fields share one `struct` call. `Decoding` and `Encoding` write that source.

What the bytes look like (Kafka's protocol guide; KIP-482 for flexible versions):
- Fixed-width fields are big-endian. A string's length is int16, that of bytes, records and arrays int32, -1 is null. Flexible versions
  have an unsigned varint of length + 1 in all four places, 0 is null.
- A nullable struct starts with an int8: -1 for null, 1 for present. As a tagged field it starts with 0 for null.
- In flexible versions every struct ends in its tagged fields: their count, then tag, size and value of each, ascending, defaults left out.

Decoding trusts nothing: each length is checked against the end of the buffer before it is used, an array's count against the smallest
size of its elements, and all entries of one request against a budget: TooManyEntriesError. An element of an array and a tagged field
are an entry each; of plain numbers, which cost little, eight are one. Whatever else is wrong ends in DecodeError. Bytes after
the message are left alone: Kafka ignores them too, and the end position tells. Unknown tagged fields are skipped, not kept, and a struct
with more than `MAX_TAGGED_FIELDS` is refused (CVE-2026-111115: Kafka lets one request hold millions).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from .codec_source import Source, smallest_size
from .errors import DecodeError, TooManyEntriesError
from .schema import Field, FieldType, Kind, Message, Records, schema_of
from .uvarint import MAX_TAGGED_FIELDS, Buffer, refused_tagged_fields, rest_of_uvarint, skip_tagged_fields, uvarint

T = TypeVar("T")
Decoder: TypeAlias = Callable[..., tuple[T, int]]
Encoder: TypeAlias = Callable[[T], bytes]

MAX_REQUEST_ENTRIES = 100_000
"""Of a request whose reader gives no budget of its own: at the worst some 60 MB."""

MAX_OTHER_ENTRIES = 2**31 - 1
"""Of responses and stored records, whose writers are trusted: a producer snapshot may well hold millions."""

ENTRIES_PER_NUMBER_SHIFT = 3
"""An array of n plain numbers counts as n >> 3 entries: a number takes an eighth of the memory and time of a struct."""

MAX_STRING_BYTES = 32767
"""Of any string in UTF-8, also where its length would have room for more (MessageDataGenerator in Kafka)."""

_LEGACY_LENGTH_CODES = {Kind.STRING: "h", Kind.BYTES: "i", Kind.RECORDS: "i", Kind.ARRAY: "i"}


def decode(cls: type[T], version: int, buffer: Buffer, position: int = 0) -> tuple[T, int]:
    """Returns the message that starts at `position` and the position after it; raises DecodeError for malformed bytes.

    Strings and bytes are copied out of the buffer, Records are memoryviews over it.
    """
    return decoder(cls, version)(buffer, position)


def encode(message: object, version: int) -> bytes:
    """Returns the encoding; raises ValueError for a value that this version cannot carry or that its field's type does not allow."""
    return _join(encode_chunks(message, version))


def encode_chunks(message: object, version: int) -> list[Records]:
    """Returns the encoding in order as bytes and the Records objects themselves, so that a slice of a file can leave by sendfile.

    A Records object of length 0 is not among them: the code that made it releases it.
    """
    return chunks_encoder(type(message), version)(message)


def decoder(cls: type[T], version: int) -> Decoder[T]:
    """Returns the compiled `decode(buffer, position=0, entries_max=…)` of one version; raises ValueError for a version that is not
    declared. What holds more entries is refused with TooManyEntriesError."""
    decoders = schema_of(cls).decoders
    if version not in decoders:
        decoders[version] = Decoding(cls, version).compile()
    return decoders[version]


def encoder(cls: type[T], version: int) -> Encoder[T]:
    """Returns the compiled `encode(message)` of one version; raises ValueError for a version that is not declared."""
    chunks_of = chunks_encoder(cls, version)
    return lambda message: _join(chunks_of(message))


def _join(chunks: list[Records]) -> bytes:
    if len(chunks) == 1:
        return chunks[0]  # type: ignore[no-any-return]
    return b"".join([chunk if isinstance(chunk, (bytes, bytearray, memoryview)) else chunk.read() for chunk in chunks])


def chunks_encoder(cls: type[Any], version: int) -> Callable[[Any], list[Records]]:
    """Returns the compiled `encode_chunks(message)` of one version; raises ValueError for a version that is not declared."""
    encoders = schema_of(cls).encoders
    if version not in encoders:
        encoders[version] = Encoding(cls, version).compile()
    return encoders[version]


class Decoding(Source):
    """Writes `decode(buffer, position=0, left=…) -> (message, end position)`.

    Its variables: `p` is the position, `end` the buffer's length, `left` what remains of the budget of entries, `n1`, `n2` … are
    lengths and counts with -1 for null, `m1`, `m2` … the structs being filled.
    """

    def __init__(self, cls: type[Any], version: int) -> None:
        super().__init__(cls, version, "decode")
        self.null_flags = "< 0"
        self.namespace.update(new=object.__new__, rest_of_uvarint=rest_of_uvarint, skip_tagged_fields=skip_tagged_fields)
        self.namespace.update(refused_count=_refused_count, refused_tagged_fields=refused_tagged_fields)
        budget = MAX_REQUEST_ENTRIES if schema_of(cls).is_request else MAX_OTHER_ENTRIES
        with self.block(f"def {self.function_name}(buffer, position=0, left={budget}):"):
            self.line("p, end = position, len(buffer)")
            if not self.is_flexible and not any(field.is_in(version) for field in schema_of(cls).fields):
                # Nothing is read here that would find out that the header before it was cut.
                self.line(f'if p > end: raise DecodeError("{self.title}: begins behind the end")')
            with self.block("try:"):
                self.line(f"m = new({self.bind_class(cls)})")
                self.struct(cls, "m", self.title)
                self.flush()
                self.line("return m, p")
            with self.block("except (struct_error, IndexError, UnicodeDecodeError) as error:"):
                self.line(f'raise DecodeError(f"{self.title}: {{error}}") from error')

    def flush(self) -> None:
        targets = [target for target, _ in self.pending]
        codes = "".join(code for _, code in self.pending)
        self.pending.clear()
        if codes == "B":
            self.line(f"{targets[0]} = buffer[p]; p += 1")
        elif codes:
            self.line(f"{', '.join(targets)}, = {self.bind_struct(codes, 'unpack_from')}(buffer, p); p += {struct.calcsize('>' + codes)}")

    def struct(self, cls: type[Message], variable: str, path: str) -> None:
        tagged = []
        for field in schema_of(cls).fields:
            target = f"{variable}.{field.name}"
            if not field.is_in(self.version):
                self.default(field, target)
            elif field.tag is not None:
                self.default(field, target)
                tagged.append(field)
            else:
                self.field(field, target, path)
        if self.is_flexible:
            self.tagged_fields(tagged, variable, path)

    def default(self, field: Field, target: str) -> None:
        if not isinstance(field.default, type):
            self.line(f"{target} = {field.default!r}")
            return
        variable = self.name("m")
        self.line(f"{target} = {variable} = new({self.bind_class(field.default)})")
        for inner in schema_of(field.default).fields:
            self.default(inner, f"{variable}.{inner.name}")

    def field(self, field: Field, target: str, path: str) -> None:
        is_compact = self.is_flexible and field.is_compactable
        self.null_flags = "< 0" if field.tag is None else "<= 0"
        self.value(field.type, target, f"{path} {field.name}", field.is_nullable_in(self.version), is_compact)

    def value(self, field_type: FieldType, target: str, path: str, is_nullable: bool, is_compact: bool) -> None:
        if field_type.kind is Kind.FIXED:
            self.pending.append((target, field_type.code))
        elif field_type.kind is Kind.STRUCT:
            self.nested_struct(field_type, target, path, is_nullable)
        else:
            n = self.length(field_type.kind, path, is_compact)
            if is_nullable:
                with self.block(f"if {n} == -1:"):
                    self.line(f"{target} = None")
                with self.block("else:"):
                    self.sized_value(field_type, target, path, n)
            else:
                self.sized_value(field_type, target, path, n)

    def length(self, kind: Kind, path: str, is_compact: bool) -> str:
        n = self.name("n")
        if not is_compact:
            self.pending.append((n, _LEGACY_LENGTH_CODES[kind]))
            self.flush()
            return n
        self.pending.append((n, "B"))
        with self.block(f"if {n} > 127:"):
            self.line(f"{n}, p = rest_of_uvarint(buffer, p, {n})")
            if kind is Kind.STRING:
                self.line(f'if {n} > {MAX_STRING_BYTES + 1}: raise DecodeError("{path}: the string is too long")')
        self.line(f"{n} -= 1")
        return n

    def sized_value(self, field_type: FieldType, target: str, path: str, n: str) -> None:
        if field_type.kind is Kind.ARRAY:
            assert field_type.element is not None
            self.array(field_type.element, target, path, n)
            return
        value = {
            Kind.STRING: 'str(buffer[p:e], "utf-8")', Kind.BYTES: "bytes(buffer[p:e])", Kind.RECORDS: "memoryview(buffer)[p:e]",
        }[field_type.kind]  # fmt: skip
        self.line(f"e = p + {n}")
        self.line(f'if not p <= e <= end: raise DecodeError("{path}: the length does not fit")')
        self.line(f"{target} = {value}; p = e")

    def nested_struct(self, field_type: FieldType, target: str, path: str, is_nullable: bool) -> None:
        assert field_type.cls is not None
        if not is_nullable:
            self.new_struct(field_type.cls, target, path)
            return
        flag = self.name("n")
        self.pending.append((flag, "b"))
        with self.block(f"if {flag} {self.null_flags}:"):
            self.line(f"{target} = None")
        with self.block("else:"):
            self.new_struct(field_type.cls, target, path)

    def new_struct(self, cls: type[Message], target: str, path: str) -> None:
        variable = self.name("m")
        self.line(f"{target} = {variable} = new({self.bind_class(cls)})")
        self.struct(cls, variable, path)

    def array(self, element: FieldType, target: str, path: str, n: str) -> None:
        smallest = smallest_size(element, self.version, self.is_flexible)
        are_numbers = element.kind is Kind.FIXED and element.code != "16s"
        entries = f"({n} >> {ENTRIES_PER_NUMBER_SHIFT})" if are_numbers else n
        self.line(f'if {n} < 0 or {n} * {smallest} > end - p or {entries} > left: raise refused_count("{path}", {n}, {smallest}, end - p)')
        self.line(f"left -= {entries}")
        if are_numbers:
            self.line(f'{target} = [*unpack_from(f">{{{n}}}{element.code}", buffer, p)]; p += {smallest} * {n}')
            return
        items, add = self.name("a"), self.name("add")
        self.line(f"{target} = {items} = []")
        self.line(f"{add} = {items}.append")
        with self.block(f"for _ in range({n}):"):
            item = self.name("m")
            if element.kind is Kind.STRUCT:
                assert element.cls is not None
                self.line(f"{item} = new({self.bind_class(element.cls)})")
                self.struct(element.cls, item, path)
            else:
                self.value(element, item, path, False, self.is_flexible)
            self.flush()
            self.line(f"{add}({item})")

    def tagged_fields(self, fields: list[Field], variable: str, path: str) -> None:
        count = self.name("n")
        self.pending.append((count, "B"))
        self.flush()
        if not fields:
            self.line(f"if {count}: p, left = skip_tagged_fields(buffer, p, {count}, left)")
            return
        tag, size, stop = self.name("tag"), self.name("size"), self.name("stop")
        with self.block(f"if {count}:"):
            self.line(f'if {count} > {MAX_TAGGED_FIELDS} or {count} > left: raise refused_tagged_fields("{path}", {count})')
            self.line(f"left -= {count}")
            with self.block(f"for _ in range({count}):"):
                for number in (tag, size):
                    self.line(f"{number} = buffer[p]; p += 1")
                    self.line(f"if {number} > 127: {number}, p = rest_of_uvarint(buffer, p, {number})")
                self.line(f"{stop} = p + {size}")
                self.line(f'if {stop} > end: raise DecodeError("{path}: a tagged field does not fit")')
                for place, field in enumerate(fields):
                    with self.block(f"{'elif' if place else 'if'} {tag} == {field.tag}:"):
                        self.field(field, f"{variable}.{field.name}", path)
                        self.flush()
                        self.line(f'if p != {stop}: raise DecodeError("{path} {field.name}: not of the size of its tag")')
                with self.block("else:"):
                    self.line(f"p = {stop}")


def _refused_count(path: str, count: int, smallest: int, room: int) -> DecodeError:
    """What to raise for an array's count: it does not fit into the buffer, or else into the budget."""
    if count < 0 or count * smallest > room:
        return DecodeError(f"{path}: the count does not fit")
    return TooManyEntriesError(f"{path}: {count} entries are too many")


class Encoding(Source):
    """Writes `encode_chunks(message) -> list of bytes and Records`.

    Its variables: `out` collects bytes up to the next Records and `chunks` what is complete; each struct with tagged fields has a
    list of its own for one tagged field at a time. `self.out` is the list that is written to now.
    """

    def __init__(self, cls: type[Any], version: int) -> None:
        super().__init__(cls, version, "encode")
        self.namespace.update(uvarint=uvarint, string_length=_string_length, pack=struct.pack, join=b"".join)
        self.out = "out"
        self.null_struct = "-1"
        with self.block(f"def {self.function_name}(m):"):
            self.line("out, chunks = [], []")
            self.line("write_out = out.append")
            self.begin()
            with self.block("try:"):
                self.struct(cls, "m", self.title)
                self.flush()
                self.line("chunks.append(join(out))")
                self.line("return chunks")
            with self.block("except (struct_error, TypeError, AttributeError) as error:"):
                self.line(f'raise ValueError(f"{self.title}: {{error}}") from error')

    def flush(self) -> None:
        if self.pending:
            self.line(f"write_{self.out}({self.packed()})")

    def packed(self, *more: tuple[str, str]) -> str:
        """Returns the expression that packs the pending fields and `more`; nothing is pending afterwards."""
        fields = [*self.pending, *more]
        self.pending.clear()
        codes = "".join(code for _, code in fields)
        return f"{self.bind_struct(codes, 'pack')}({', '.join(expression for expression, _ in fields if expression)})"

    def struct(self, cls: type[Message], variable: str, path: str) -> None:
        tagged = []
        for field in schema_of(cls).fields:
            value = f"{variable}.{field.name}"
            if not field.is_in(self.version):
                if not field.ignorable:
                    self.line(f'if {self.differs(field, value)}: raise ValueError("{path}: {field.name} is not in this version")')
            elif field.tag is not None:
                tagged.append(field)
            else:
                self.field(field, value, path)
        if tagged and self.is_flexible:
            self.tagged_fields(sorted(tagged, key=lambda field: field.tag or 0), variable, path)
        elif self.is_flexible:
            self.pending.append(("", "x"))  # Packs as a zero byte: no tagged fields.

    def differs(self, field: Field, value: str) -> str:
        """Returns the condition that a field has another value than its default, without building a struct to compare with."""
        if isinstance(field.default, type):
            differs = " or ".join(self.differs(inner, f"{value}.{inner.name}") for inner in schema_of(field.default).fields)
            return differs if field.nullable_since is None else f"{value} is None or {differs}"
        if field.default is None:
            return f"{value} is not None"
        if not field.default and field.nullable_since is None:
            return value
        return f"{value} != {field.default!r}"

    def field(self, field: Field, value: str, path: str) -> None:
        is_compact = self.is_flexible and field.is_compactable
        self.null_struct = "0" if field.tag is not None else "-1"
        self.value(field.type, value, path, field.is_nullable_in(self.version), is_compact)

    def value(self, field_type: FieldType, value: str, path: str, is_nullable: bool, is_compact: bool) -> None:
        if field_type.kind is Kind.FIXED:
            self.pending.append((value, field_type.code))
        elif field_type.kind is Kind.STRUCT:
            self.nested_struct(field_type, value, path, is_nullable)
        else:
            self.sized_value(field_type, value, path, is_nullable, is_compact)

    def sized_value(self, field_type: FieldType, value: str, path: str, is_nullable: bool, is_compact: bool) -> None:
        v = self.name("v")
        self.line(f"{v} = {value}{'.encode()' if field_type.kind is Kind.STRING and not is_nullable else ''}")
        if field_type.kind is Kind.STRING and is_nullable:
            self.line(f"if {v} is not None: {v} = {v}.encode()")
        self.length(field_type.kind, v, is_nullable, is_compact)
        if field_type.kind is Kind.ARRAY:
            assert field_type.element is not None
            self.array(field_type.element, f"({v} or ())" if is_nullable else v, path)
        elif field_type.kind is Kind.RECORDS:
            with self.block(f"if {v}:"):
                self.line("chunks += join(out), " + v)
                self.line("out.clear()")
        elif is_nullable:
            self.line(f"if {v}: write_{self.out}({v})")
        else:
            self.line(f"write_{self.out}({v})")

    def length(self, kind: Kind, v: str, is_nullable: bool, is_compact: bool) -> None:
        null = "0" if is_compact else "-1"
        size = f"len({v}) + 1" if is_compact else f"len({v})"
        expression = f"{null} if {v} is None else {size}" if is_nullable else size
        if not is_compact:
            self.pending.append((f"({expression})" if is_nullable else expression, _LEGACY_LENGTH_CODES[kind]))
            self.flush()
            return
        n = self.name("n")
        self.line(f"{n} = {expression}")
        before = list(self.pending)
        one_byte = self.packed((n, "B"))
        self.pending = before
        long_length = f"{'string_length' if kind is Kind.STRING else 'uvarint'}({n})"
        more_bytes = f"{self.packed()} + {long_length}" if before else long_length
        self.line(f"write_{self.out}({one_byte} if {n} < 128 else {more_bytes})")

    def nested_struct(self, field_type: FieldType, value: str, path: str, is_nullable: bool) -> None:
        assert field_type.cls is not None
        variable = self.name("m")
        self.line(f"{variable} = {value}")
        if not is_nullable:
            self.struct(field_type.cls, variable, path)
            return
        with self.block(f"if {variable} is None:"):
            self.pending.append((self.null_struct, "b"))
        with self.block("else:"):
            self.pending.append(("1", "b"))
            self.struct(field_type.cls, variable, path)

    def array(self, element: FieldType, items: str, path: str) -> None:
        if element.kind is Kind.FIXED:
            self.numbers(element, items)
            return
        item = self.name("m")
        with self.block(f"for {item} in {items}:"):
            start = len(self.lines)
            self.element()
            if element.kind is Kind.STRUCT:
                assert element.cls is not None
                self.struct(element.cls, item, path)
            else:
                self.value(element, item, path, False, self.is_flexible)
        self.fold_loop(start, item, items)

    def numbers(self, element: FieldType, items: str) -> None:
        self.line(f'write_{self.out}(pack(">" + "{element.code}" * len({items}), *{items}))')

    # `begin`, `element`, `numbers` and `fold_loop` are what protocol/codec_in_turns.py writes in another way.

    def begin(self) -> None:
        """Writes what comes before the message."""

    def element(self) -> None:
        """Writes what comes before each element of an array."""

    def fold_loop(self, start: int, item: str, items: str) -> None:
        """Turns a loop whose body is one write into a comprehension, which takes two thirds of the time."""
        write = f"write_{self.out}("
        body = self.lines[start].strip() if len(self.lines) == start + 1 else ""
        if body.startswith(write):
            del self.lines[start - 1 :]
            self.line(f"{self.out} += [{body[len(write) : -1]} for {item} in {items}]")

    def tagged_fields(self, fields: list[Field], variable: str, path: str) -> None:
        outer, count, tags = self.out, self.name("n"), self.name("tags")
        self.flush()
        self.line(f"{count}, {tags} = 0, b''")
        for field in fields:
            value = f"{variable}.{field.name}"
            self.out = self.name("out")
            with self.block(f"if {self.differs(field, value)}:"):
                self.line(f"{self.out} = []; write_{self.out} = {self.out}.append")
                self.field(field, value, path)
                self.flush()
                self.line(f"{self.out} = join({self.out})")
                self.line(f"{count} += 1")
                self.line(f"{tags} += uvarint({field.tag}) + uvarint(len({self.out})) + {self.out}")
            self.out = outer
        self.line(f"write_{self.out}(uvarint({count}) + {tags})")


def _string_length(length_plus_one: int) -> bytes:
    if length_plus_one > MAX_STRING_BYTES + 1:
        raise ValueError(f"a string has {length_plus_one - 1} bytes, {MAX_STRING_BYTES} at most")
    return uvarint(length_plus_one)
