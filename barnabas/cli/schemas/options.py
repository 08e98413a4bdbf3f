"""The options of `consume` and `produce` that say what keys and values are, and the codecs that follow from them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

from barnabas.cli.errors import NotUnderstoodError
from barnabas.cli.schemas.codec import Codec
from barnabas.cli.schemas.framed import FramedCodec
from barnabas.cli.schemas.registry import Registry

AVRO_SUFFIX = ".avsc"


class Codecs(NamedTuple):
    """None where the bytes are taken as they are."""

    key: Codec | None
    value: Codec | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("schemas", "keys and values as JSON; needs pip install 'barnabas[schemas]'").add_argument
    add("--schema-registry", metavar="URL", help="Confluent's or one with its API; values, and with --registry-keys keys, have its ids")
    add("--registry-keys", action="store_true", help="the registry is for keys as well")
    for part in ("value", "key"):
        add(f"--{part}-schema", metavar="FILE", help="NAME.avsc, or of `protoc --include_imports --descriptor_set_out` FILE#MESSAGE")


def make_codecs(options: argparse.Namespace, topic: str) -> Codecs | None:
    """None without a schema. Subjects are TOPIC-key and TOPIC-value. Raises NotUnderstoodError."""
    if options.schema_registry is None and options.registry_keys:
        raise NotUnderstoodError("--registry-keys goes with --schema-registry")
    if options.schema_registry is None and options.value_schema is None and options.key_schema is None:
        return None
    registry = None if options.schema_registry is None else Registry(options.schema_registry, options.timeout)
    key = value = None
    if registry is not None:
        value = FramedCodec(registry, f"{topic}-value")
        key = FramedCodec(registry, f"{topic}-key") if options.registry_keys else None
    return Codecs(
        key if options.key_schema is None else _of_file(options.key_schema),
        value if options.value_schema is None else _of_file(options.value_schema),
    )


def _of_file(text: str) -> Codec:
    name, _, message = text.partition("#")
    path = Path(name)
    if path.suffix == AVRO_SUFFIX:
        from barnabas.cli.schemas.avro import AvroCodec

        try:
            return AvroCodec([path.read_text()])
        except (OSError, UnicodeDecodeError) as e:
            raise NotUnderstoodError(f"{path}: {e}") from e
    from barnabas.cli.schemas.protobuf import from_file

    return from_file(path, message)
