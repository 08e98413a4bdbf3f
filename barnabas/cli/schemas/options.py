"""The options of `consume` and `produce` that say what keys and values are, and the codecs that follow from them."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import NamedTuple

from barnabas.cli.errors import NotUnderstoodError
from barnabas.cli.schemas.codec import Codec, SchemaCodec
from barnabas.cli.schemas.framed import FramedCodec
from barnabas.cli.schemas.registry import LOGIN, Registry
from barnabas.cli.settings import SchemaSettings

AVRO_SUFFIX = ".avsc"
OF_CONTEXT = "context"


class Codecs(NamedTuple):
    """None where the bytes are taken as they are."""

    key: Codec | None
    value: Codec | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("schemas", "keys and values as JSON; needs pip install 'barnabas[schemas]'").add_argument
    add(
        "--schema-registry",
        metavar="URL",
        help="Confluent's or one with its API, or the word context for the context's; values, and with --registry-keys keys, have its ids",
    )
    add("--registry-keys", action="store_true", help="the registry is for keys as well")
    for part in ("value", "key"):
        add(f"--{part}-schema", metavar="FILE", help="NAME.avsc, or of `protoc --include_imports --descriptor_set_out` FILE#MESSAGE")


def make_codecs(options: argparse.Namespace, topic: str, of_context: SchemaSettings) -> Codecs | None:
    """None without a schema. Subjects are TOPIC-key and TOPIC-value. Raises NotUnderstoodError."""
    if options.schema_registry is None and options.registry_keys:
        raise NotUnderstoodError("--registry-keys goes with --schema-registry")
    if options.schema_registry is None and options.value_schema is None and options.key_schema is None:
        return None
    registry = None if options.schema_registry is None else _registry(options, of_context)
    key = value = None
    if registry is not None:
        value = FramedCodec(registry, f"{topic}-value")
        key = FramedCodec(registry, f"{topic}-key") if options.registry_keys else None
    return Codecs(
        key if options.key_schema is None else of_file(options.key_schema),
        value if options.value_schema is None else of_file(options.value_schema),
    )


def _registry(options: argparse.Namespace, of_context: SchemaSettings) -> Registry:
    """A context's login is for its own registry alone."""
    if options.schema_registry != OF_CONTEXT:
        is_its_own = options.schema_registry == of_context.registry
        return Registry(options.schema_registry, options.timeout, (of_context.login if is_its_own else "") or os.environ.get(LOGIN, ""))
    if not of_context.registry:
        raise NotUnderstoodError("--schema-registry context: the context has none; barnabas context add … --schema-registry URL")
    return Registry(of_context.registry, options.timeout, of_context.login or os.environ.get(LOGIN, ""))


def of_file(text: str) -> SchemaCodec:
    """`NAME.avsc`, or `FILE#MESSAGE` of descriptors. Raises NotUnderstoodError."""
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
