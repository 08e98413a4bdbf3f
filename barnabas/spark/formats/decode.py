"""Typed columns beside the raw ones: what `barnabas.spark.decode` does."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (its usual name)
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StringType, StructField, StructType

from ..errors import OptionError
from .naming import AVRO, JSON, FormatName, read_file, read_format
from .values import HEADER_SIZE, MAGIC, SchemaError, UndecodableError, ValueDecoder

PROBLEM = "problem"
"""The column with the reason why a row cannot be decoded; null if it can."""
INSTALL = "pip install 'barnabas[pipeline,schemas]'"
CORRUPT = "__corrupt"
"""A field that Spark's from_json fills in for what does not fit the schema."""


def decode(
    rows: DataFrame, column: str, format: str, *, into: str | None = None, topic: str | None = None, registry_login: str | None = None
) -> DataFrame:
    """As `barnabas.spark.decode`."""
    if column not in rows.columns or rows.schema[column].dataType.simpleString() != "binary":
        raise OptionError(f"there is no column {column} of type binary to decode; the rows have {', '.join(rows.columns)}")
    into = into or typed_name(column)
    if into in rows.columns:
        raise OptionError(f"the rows have a column {into} already: name another one")
    return open_decoding(column, format, into=into, topic=topic, registry_login=registry_login)(rows)


def typed_name(column: str) -> str:
    return f"typed_{column}"


def open_decoding(
    column: str, format: str, *, into: str, topic: str | None = None, registry_login: str | None = None
) -> Callable[[DataFrame], DataFrame]:
    """What adds the two columns to rows, for all batches of a stream by the schema that is the newest now. Needs no session. Raises
    OptionError; what it returns may too, for a schema in Spark's DDL."""
    name = read_format(format)
    if name.kind == JSON:
        text = _text(name.where)
        return lambda rows: decode_json(rows, column, _json_schema(name.where, text), into=into, is_confluent=name.is_confluent)
    decoder = open_decoder(name, column, topic=topic, registry_login=registry_login)
    return lambda rows: decode_by(rows, column, decoder, into=into)


def open_decoder(name: FormatName, column: str, *, topic: str | None = None, registry_login: str | None = None) -> ValueDecoder:
    """Of Avro or Protobuf. Reads files, and asks the registry for the newest schema. OptionError names what is wrong."""
    try:
        if name.kind == AVRO:
            return _avro(name, column, topic, registry_login)
        from .protobuf import ProtobufDecoder

        return ProtobufDecoder(read_file(name.where), name.what, is_confluent=name.is_confluent)
    except SchemaError as e:
        raise OptionError(f"the schema {name.where}: {e}") from e
    except ImportError as e:
        raise OptionError(f"{name.kind} needs {e.name}, which comes with: {INSTALL}") from e


def _avro(name: FormatName, column: str, topic: str | None, registry_login: str | None) -> ValueDecoder:
    from .avro import AvroDecoder
    from .registry import FolderSchemas, Registry, SchemaText

    if not name.is_confluent:
        return AvroDecoder(SchemaText(_text(name.where)), None)
    writers = Registry(name.where, registry_login) if name.is_of_registry else FolderSchemas(name.where)
    if name.what.endswith(".avsc"):
        return AvroDecoder(SchemaText(_text(name.what)), writers)
    if isinstance(writers, FolderSchemas):
        if name.what:
            raise OptionError(f"{name.what} is no file that ends with .avsc: a folder has no subjects")
        return AvroDecoder(writers.newest(), writers)
    if not name.what and topic is None:
        raise OptionError(f"{name.where} needs the subject whose newest schema the column has, such as {name.where}#orders-{column}")
    return AvroDecoder(writers.newest(name.what or f"{topic}-{column}"), writers)


def decode_json(rows: DataFrame, column: str, schema: StructType, *, into: str, is_confluent: bool) -> DataFrame:
    """By Spark's from_json, which takes fields in any order, leaves out what the schema does not name, and makes null of what lacks."""
    raw = F.substring(F.col(column), HEADER_SIZE + 1, 2**31 - 1) if is_confluent else F.col(column)
    has_header = F.length(column) >= HEADER_SIZE
    has_header &= F.substring(F.col(column), 1, 1) == F.lit(bytes([MAGIC]))
    text = raw.cast("string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    parsed = F.from_json(text, StructType([*schema.fields, StructField(CORRUPT, StringType())]), options)
    reasons = [
        (~has_header, "not a registry's format") if is_confluent else None,
        (~F.call_function("is_valid_utf8", text), "not UTF-8"),
        (F.call_function("try_parse_json", text).isNull() & _is_corrupt(parsed), "not JSON"),
        (_is_corrupt(parsed), "JSON, but not of the schema: not an object, or a field has another type"),
    ]
    reason = F.lit(None).cast("string")
    for condition, sentence in reversed([each for each in reasons if each is not None]):
        reason = F.when(condition, F.lit(f"{column}: {sentence}")).otherwise(reason)
    problem = F.when(F.col(column).isNotNull(), reason)
    typed = F.when(problem.isNull() & F.col(column).isNotNull(), parsed.dropFields(CORRUPT))
    return rows.withColumns({into: typed, PROBLEM: _first_problem(rows, problem)})


def _is_corrupt(parsed: Column) -> Column:
    return parsed.isNull() | parsed[CORRUPT].isNotNull()


def _first_problem(rows: DataFrame, problem: Column) -> Column:
    return F.coalesce(F.col(PROBLEM), problem) if PROBLEM in rows.columns else problem


def _json_schema(path: str, text: str) -> StructType:
    """Of Spark's DDL, or of its JSON. The DDL needs a session."""
    try:
        schema = StructType.fromJson(json.loads(text)) if text.lstrip().startswith("{") else StructType.fromDDL(" ".join(text.split()))
    except (PySparkException, ValueError, KeyError, TypeError) as e:
        raise OptionError(f"the schema {path} is neither Spark's DDL, such as id BIGINT, name STRING, nor Spark's JSON") from e
    if not isinstance(schema, StructType) or not schema.fields:
        raise OptionError(f"the schema {path} has no fields")
    return schema


def decode_by(rows: DataFrame, column: str, decoder: ValueDecoder, *, into: str) -> DataFrame:
    """In Spark's Python workers, batch by batch."""
    _require_pandas()
    others = [field for field in rows.schema.fields if field.name != PROBLEM]
    schema = StructType([*others, StructField(into, from_arrow_type(decoder.type)), StructField(PROBLEM, StringType())])
    return rows.mapInArrow(BatchDecoder(column, decoder, into), schema)


def _require_pandas() -> None:
    """pyspark's mapInArrow looks for it, though it uses pyarrow alone."""
    if importlib.util.find_spec("pandas") is None:
        raise OptionError(f"Spark needs pandas for this, which comes with: {INSTALL}")


class BatchDecoder:
    """The function of the tasks."""

    def __init__(self, column: str, decoder: ValueDecoder, into: str) -> None:
        self._column = column
        self._decoder = decoder
        self._into = into

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield self._decode(batch)

    def _decode(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with two more columns; a problem that it has stays."""
        values = batch.column(self._column).to_pylist()
        decoded: list[object] = [None] * len(values)
        problems: list[str | None] = [None] * len(values)
        for row, value in enumerate(values):
            if value is not None:
                try:
                    decoded[row] = self._decoder.decode(value)
                except UndecodableError as e:
                    problems[row] = f"{self._column}: {e}"
        typed = self._array(decoded, problems)
        names = [name for name in batch.schema.names if name != PROBLEM]
        if PROBLEM in batch.schema.names:
            earlier = batch.column(PROBLEM).to_pylist()
            problems = [first or second for first, second in zip(earlier, problems, strict=True)]
        columns = [batch.column(name) for name in names]
        return pa.RecordBatch.from_arrays([*columns, typed, pa.array(problems, pa.string())], [*names, self._into, PROBLEM])

    def _array(self, decoded: list[object], problems: list[str | None]) -> pa.Array:
        """Notes what Arrow does not take, such as a decimal with too many digits."""
        kind = self._decoder.type
        try:
            return pa.array(decoded, kind)
        except (pa.ArrowException, OverflowError, ValueError, TypeError):
            pass  # one row of them: which?
        for row, value in enumerate(decoded):
            try:
                pa.array([value], kind)
            except (pa.ArrowException, OverflowError, ValueError, TypeError) as e:
                decoded[row], problems[row] = None, f"{self._column}: a value is out of its type's range: {e}"
        return pa.array(decoded, kind)


def _text(path: str) -> str:
    try:
        return read_file(path).decode()
    except UnicodeDecodeError as e:
        raise OptionError(f"the schema {path} is not UTF-8") from e
