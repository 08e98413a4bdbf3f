"""The four messages of a SCRAM exchange as text.

A parsed message keeps the text that its peer sent, because the signatures are computed over it (RFC 5802, section 3). Kafka computes them
over the fields that it knows, so that a client that sends other extensions, or `m=`, fails there; `m=` is refused here too.

Source: ScramMessages, ScramExtensions, ScramFormatter.saslName and username.
"""

from __future__ import annotations

import base64
import re
from typing import NamedTuple

from .exchange import SaslError

MESSAGE_SIZE_MAX = 65_536
"""Bytes. A frame may have eight times as many; a user's name has at most 32,767."""

GS2_HEADER = "n,,"
TOKEN_AUTHENTICATION = "tokenauth"

_SASL_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_VALUE = r"[\x01-\x2b\x2d-\x7f]+"
_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_EXTENSIONS = rf"(?:,[A-Za-z]+={_VALUE})*"

_CLIENT_FIRST = re.compile(
    rf"(?P<header>n,(?:a=(?P<authzid>{_SASL_NAME}))?,)"
    rf"(?P<bare>n=(?P<name>{_SASL_NAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS}))"
)
_SERVER_FIRST = re.compile(rf"r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,9}}){_EXTENSIONS}")
_CLIENT_FINAL = re.compile(rf"(?P<without>c=(?P<channel>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})")
_SERVER_FINAL = re.compile(rf"(?:e=(?P<error>{_VALUE})|v=(?P<signature>{_BASE64})){_EXTENSIONS}")


class ClientFirst(NamedTuple):
    """`username` and `authorization_id` are unescaped; `header` is the GS2 header with its last comma."""

    header: str
    bare: str
    username: str
    authorization_id: str
    nonce: str
    is_token_authentication: bool


class ServerFirst(NamedTuple):
    text: str
    nonce: str
    salt: bytes
    iterations: int


class ClientFinal(NamedTuple):
    without_proof: str
    channel_binding: bytes
    nonce: str
    proof: bytes


def parse_client_first(message: bytes) -> ClientFirst:
    """Raises SaslError, also for the channel-binding flags `p=` and `y`: there is no channel binding, as in Kafka."""
    found = _parse(_CLIENT_FIRST, message, "client first")
    extensions = dict(pair.split("=", 1) for pair in found["extensions"].split(",")[1:])
    return ClientFirst(
        found["header"],
        found["bare"],
        _unescape(found["name"]),
        _unescape(found["authzid"] or ""),
        found["nonce"],
        extensions.get(TOKEN_AUTHENTICATION, "").lower() == "true",
    )


def client_first(username: str, nonce: str, *, is_token_authentication: bool) -> str:
    """The message without its GS2 header, which is GS2_HEADER."""
    extension = f",{TOKEN_AUTHENTICATION}=true" if is_token_authentication else ""
    return f"n={escape(username)},r={nonce}{extension}"


def parse_server_first(message: bytes) -> ServerFirst:
    """Raises SaslError."""
    found = _parse(_SERVER_FIRST, message, "server first")
    return ServerFirst(found[0], found["nonce"], base64.b64decode(found["salt"]), int(found["iterations"]))


def server_first(nonce: str, salt: bytes, iterations: int) -> str:
    """`nonce` is the client's and the server's after it."""
    return f"r={nonce},s={base64.b64encode(salt).decode()},i={iterations}"


def parse_client_final(message: bytes) -> ClientFinal:
    """Raises SaslError."""
    found = _parse(_CLIENT_FINAL, message, "client final")
    return ClientFinal(found["without"], base64.b64decode(found["channel"]), found["nonce"], base64.b64decode(found["proof"]))


def client_final_without_proof(nonce: str) -> str:
    return f"c={base64.b64encode(GS2_HEADER.encode()).decode()},r={nonce}"


def client_final(without_proof: str, proof: bytes) -> str:
    return f"{without_proof},p={base64.b64encode(proof).decode()}"


def parse_server_final(message: bytes) -> bytes:
    """The server's signature. Raises SaslError, also for the server's own error."""
    found = _parse(_SERVER_FINAL, message, "server final")
    if found["error"] is not None:
        raise SaslError(f"The SCRAM server answered the error {found['error']!r}")
    return base64.b64decode(found["signature"])


def server_final(signature: bytes) -> str:
    return f"v={base64.b64encode(signature).decode()}"


def auth_message(client_first_bare: str, server_first_text: str, client_final_without_proof_text: str) -> bytes:
    return f"{client_first_bare},{server_first_text},{client_final_without_proof_text}".encode()


def escape(username: str) -> str:
    return username.replace("=", "=3D").replace(",", "=2C")


def _unescape(sasl_name: str) -> str:
    return sasl_name.replace("=2C", ",").replace("=3D", "=")


def _parse(pattern: re.Pattern[str], message: bytes, name: str) -> re.Match[str]:
    if len(message) > MESSAGE_SIZE_MAX:
        raise SaslError(f"The SCRAM {name} message is too long")
    try:
        found = pattern.fullmatch(message.decode("ascii"))
    except UnicodeDecodeError:
        found = None
    if found is None:
        raise SaslError(f"Invalid SCRAM {name} message format")
    return found
