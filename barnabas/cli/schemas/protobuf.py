"""Protobuf as its own JSON mapping, by descriptors: a file of `protoc --include_imports --descriptor_set_out`, or what a registry has."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, json_format, message_factory
from google.protobuf.descriptor_pool import Default, DescriptorPool
from google.protobuf.message import DecodeError

from barnabas.cli.errors import NotUnderstoodError
from barnabas.cli.schemas.codec import NotOfSchemaError, one_line

GOOGLE = "google/protobuf/"


class ProtobufCodec:
    """Of one message type."""

    kind = "Protobuf"

    def __init__(self, descriptor: Any) -> None:
        self._type = message_factory.GetMessageClass(descriptor)
        self.name = str(descriptor.full_name)

    def decode(self, data: bytes) -> bytes:
        try:
            message = self._type.FromString(data)
            text: str = json_format.MessageToJson(message, preserving_proto_field_name=True, indent=None, ensure_ascii=False)
            return text.encode()
        except (DecodeError, json_format.Error, ValueError, TypeError) as e:
            raise NotOfSchemaError(f"no Protobuf of its schema: {one_line(e)}") from e

    def encode(self, text: bytes) -> bytes:
        try:
            return bytes(json_format.Parse(text.decode(), self._type()).SerializeToString())
        except (json_format.Error, ValueError, TypeError) as e:
            raise NotOfSchemaError(f"not of the Protobuf schema: {one_line(e)}") from e


def from_file(path: Path, name: str) -> ProtobufCodec:
    """`name` is a message's whole name; "" the first of the last file. Raises NotUnderstoodError."""
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(path.read_bytes()).file
    except (OSError, DecodeError) as e:
        raise NotUnderstoodError(f"{path} is no file of `protoc --include_imports --descriptor_set_out`: {e}") from e
    pool = _pool(files, str(path))
    try:
        return ProtobufCodec(pool.FindMessageTypeByName(name) if name else next(iter(_messages(pool, files))))
    except (KeyError, StopIteration) as e:
        raise NotUnderstoodError(f"{path} has no message {name}") from e


def from_registry(texts: Sequence[str], indexes: Sequence[int]) -> ProtobufCodec:
    """`texts` are serialized descriptors in base64, with those that the last one refers to before it; `indexes` lead from its messages to
    the nested ones. Raises NotUnderstoodError."""
    try:
        files = [descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text)) for text in texts]
    except (DecodeError, binascii.Error, ValueError) as e:
        raise NotUnderstoodError(f"the schema registry has no serialized Protobuf: {one_line(e)}") from e
    pool = _pool(files, "the schema registry")
    try:
        names = [files[-1].package] if files[-1].package else []
        message: Any = files[-1]
        for number, index in enumerate(indexes):
            message = message.message_type[index] if number == 0 else message.nested_type[index]
            names.append(message.name)
        return ProtobufCodec(pool.FindMessageTypeByName(".".join(names)))
    except (IndexError, KeyError) as e:
        raise NotUnderstoodError(f"the schema has no message {list(indexes)}") from e


def _pool(files: Sequence[Any], where: str) -> Any:
    """With Google's well-known types, where the files import them without having them."""
    pool = DescriptorPool()
    own = {file.name for file in files}
    try:
        for wanted in (name for file in files for name in file.dependency if name not in own):
            if not wanted.startswith(GOOGLE):
                raise KeyError(wanted)  # a registry says which modules of this machine are imported: no others than these
            proto = descriptor_pb2.FileDescriptorProto()
            __import__(wanted.removesuffix(".proto").replace("/", ".") + "_pb2")
            Default().FindFileByName(wanted).CopyToProto(proto)
            pool.Add(proto)
        for file in files:
            pool.Add(file)
    except (KeyError, TypeError, ImportError) as e:
        raise NotUnderstoodError(f"{where} lacks what a schema imports: {one_line(e)}") from e
    return pool


def _messages(pool: Any, files: Sequence[Any]) -> list[Any]:
    """Of the last file."""
    return list(pool.FindFileByName(files[-1].name).message_types_by_name.values()) if files else []
