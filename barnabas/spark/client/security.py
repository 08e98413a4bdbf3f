"""How brokers are reached: TLS and a login by SASL, by the options of Spark's own connector, which are a Java client's after `kafka.`.

Options travel from process to process, what is made of them does not: a Security is their texts, a Door what one process has made of it.
Neither shows a secret, and no error repeats a part of one.

Source: ChannelBuilders.clientChannelBuilder, SslChannelBuilder, SaslClientAuthenticator, DefaultSslEngineFactory.
"""

from __future__ import annotations

import os
import socket
import ssl
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from ...protocol.sasl.clients import client_maker
from ...protocol.sasl.exchange import SaslClient, SaslPropertyError
from ...protocol.sasl.login import Ask, log_in
from ..errors import OptionError, RefusedError
from . import stores

PROTOCOL = "kafka.security.protocol"
MECHANISM, JAAS = "kafka.sasl.mechanism", "kafka.sasl.jaas.config"
TRUST_TYPE, TRUST_LOCATION = "kafka.ssl.truststore.type", "kafka.ssl.truststore.location"
TRUST_CERTIFICATES, TRUST_PASSWORD = "kafka.ssl.truststore.certificates", "kafka.ssl.truststore.password"
KEY_TYPE, KEY_LOCATION = "kafka.ssl.keystore.type", "kafka.ssl.keystore.location"
KEY_TEXT, KEY_CHAIN, STORE_PASSWORD = "kafka.ssl.keystore.key", "kafka.ssl.keystore.certificate.chain", "kafka.ssl.keystore.password"
KEY_PASSWORD = "kafka.ssl.key.password"
IDENTIFICATION = "kafka.ssl.endpoint.identification.algorithm"
SECURITY_OPTIONS = (
    PROTOCOL, MECHANISM, JAAS, TRUST_TYPE, TRUST_LOCATION, TRUST_CERTIFICATES, TRUST_PASSWORD, KEY_TYPE, KEY_LOCATION, KEY_TEXT, KEY_CHAIN,
    STORE_PASSWORD, KEY_PASSWORD, IDENTIFICATION,
)  # fmt: skip

TLS_PROTOCOLS, SASL_PROTOCOLS = ("SSL", "SASL_SSL"), ("SASL_PLAINTEXT", "SASL_SSL")
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PEM = "PEM"
JAVA_TYPES = ("JKS", "PKCS12")
"""As in Java each reads what the other is for; JKS is the default."""
PASSING = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
"""The other side went away during the handshake: another attempt may succeed."""


class SecurityError(RefusedError):
    """One side does not trust the other, or does not let it in: another attempt would fail too."""


class Security(NamedTuple):
    """Pairs of option and text, checked. Without any the brokers are reached by PLAINTEXT."""

    texts: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        return f"Security({dict(self.texts).get(PROTOCOL, PROTOCOLS[0])})"  # texts have passwords: they may be in no log and no traceback

    def door(self) -> Door:
        """What opens connections in this process. Raises OptionError."""
        texts = dict(self.texts)
        protocol = texts.get(PROTOCOL, PROTOCOLS[0])
        context = _context(texts) if protocol in TLS_PROTOCOLS else None
        mechanism = texts.get(MECHANISM, "GSSAPI") if protocol in SASL_PROTOCOLS else ""
        return Door(context, mechanism, _login_maker(mechanism, texts) if mechanism else None)


class Door:
    """TLS if there is a context, a login if there is a mechanism."""

    def __init__(self, context: ssl.SSLContext | None, mechanism: str, start_login: Callable[[], SaslClient] | None) -> None:
        self._context = context
        self._mechanism = mechanism
        self._start_login = start_login

    def wrap(self, plain: socket.socket, host: str) -> socket.socket:
        """The connection with TLS. ssl.SSLError if one side does not trust the other."""
        return plain if self._context is None else self._context.wrap_socket(plain, server_hostname=host)

    def log_in(self, ask: Ask) -> int:
        """Returns the session's time in ms, 0 if it has no end. Raises LoginError, and what `ask` raises."""
        return 0 if self._start_login is None else log_in(ask, self._mechanism, self._start_login())


def read_security(options: Mapping[str, str]) -> Security:
    """Of all options of a source or a sink, by their names. OptionError names the one that is wrong, so that a query fails before it runs;
    files are read here too, in the driver."""
    texts = {name: options[name] for name in SECURITY_OPTIONS if options.get(name)}
    protocol = texts.get(PROTOCOL, PROTOCOLS[0]).upper()
    if protocol not in PROTOCOLS:
        raise OptionError(f"{PROTOCOL} is {texts[PROTOCOL]!r}: it is one of {', '.join(PROTOCOLS)}")
    if PROTOCOL in texts:
        texts[PROTOCOL] = protocol
    if IDENTIFICATION in options:
        texts[IDENTIFICATION] = options[IDENTIFICATION].strip()  # an empty one means something
    security = Security(tuple(sorted(texts.items())))
    security.door()
    return security


def refusal_of(error: Exception, address: object) -> SecurityError:
    """What a query ends with when a handshake or a login fails."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return SecurityError(f"the certificate of {address} is refused: {error.verify_message} (kafka.ssl.truststore.…)")
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or "TLS failed").replace("_", " ").lower()
        hint = ", which is no listener with TLS" if error.reason == "WRONG_VERSION_NUMBER" else ""
        return SecurityError(f"no TLS with {address}{hint}: {reason} ({PROTOCOL}, kafka.ssl.keystore.…)")
    return SecurityError(f"{address} refuses the login: {error}")


def _login_maker(mechanism: str, texts: Mapping[str, str]) -> Callable[[], SaslClient]:
    try:
        return client_maker(mechanism, MECHANISM, texts.get(JAAS), JAAS, os.urandom)
    except SaslPropertyError as error:
        raise OptionError(str(error)) from None


def _context(texts: Mapping[str, str]) -> ssl.SSLContext:
    algorithm = texts.get(IDENTIFICATION, "https").lower()
    if algorithm not in ("", "https"):
        raise OptionError(f"{IDENTIFICATION} is {algorithm!r}: it is https, or empty for no check of the host's name")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as in Java, any certificate of the trust store ends a chain
    context.check_hostname = bool(algorithm)
    _load_trust(context, texts)
    _load_key(context, texts)
    return context


def _load_trust(context: ssl.SSLContext, texts: Mapping[str, str]) -> None:
    location, certificates = texts.get(TRUST_LOCATION), texts.get(TRUST_CERTIFICATES)
    if location is None and certificates is None:
        context.load_default_certs()
        return
    if location is not None and certificates is not None:
        raise OptionError(f"set one of {TRUST_LOCATION} and {TRUST_CERTIFICATES}")
    is_pem = _is_pem(texts, TRUST_TYPE, TRUST_CERTIFICATES)
    name = TRUST_LOCATION if certificates is None else TRUST_CERTIFICATES
    try:
        if location is not None and not is_pem:
            context.load_verify_locations(cadata=stores.trusted_certificates(location, texts.get(TRUST_PASSWORD, "")))
        else:
            context.load_verify_locations(cafile=location, cadata=certificates)
    except ssl.SSLError:
        raise OptionError(f"{name} has no certificates in {PEM if is_pem else JAVA_TYPES[1]}") from None
    except (stores.StoreError, OSError, ValueError) as error:
        raise OptionError(f"{name} {location or ''} {_why(error)}") from None


def _load_key(context: ssl.SSLContext, texts: Mapping[str, str]) -> None:
    location, key = texts.get(KEY_LOCATION), texts.get(KEY_TEXT)
    if location is None and key is None:
        return
    if location is not None and key is not None:
        raise OptionError(f"set one of {KEY_LOCATION} and {KEY_TEXT}")
    is_pem = _is_pem(texts, KEY_TYPE, KEY_TEXT)
    if location is not None and is_pem:
        _load_key_file(context, location, texts, KEY_LOCATION)
    elif location is not None:
        try:
            found = stores.key_and_certificates(location, texts.get(STORE_PASSWORD, ""))
        except (stores.StoreError, OSError, ValueError) as error:
            raise OptionError(f"{KEY_LOCATION} {location} {_why(error)}") from None
        with _memory_file(found) as path:
            _load_key_file(context, path, texts, KEY_LOCATION)
    else:
        with _memory_file(_key_text(str(key), texts)) as path:
            _load_key_file(context, path, texts, KEY_TEXT)


def _key_text(key: str, texts: Mapping[str, str]) -> bytes:
    if "ENCRYPTED" not in key:  # redaction looks for words as password, in names and in texts: a key has none of them
        raise OptionError(
            f"{KEY_TEXT} is not encrypted, and Spark shows it in plans and event logs: encrypt it and set {KEY_PASSWORD}, which Spark "
            f"redacts, or give a file by {KEY_LOCATION}"
        )
    if KEY_CHAIN not in texts:
        raise OptionError(f"{KEY_TEXT} needs the certificates of the key in {KEY_CHAIN}")
    return f"{key}\n{texts[KEY_CHAIN]}\n".encode()


def _load_key_file(context: ssl.SSLContext, path: str, texts: Mapping[str, str], name: str) -> None:
    try:
        context.load_cert_chain(path, password=lambda: texts.get(KEY_PASSWORD, ""))  # without a password OpenSSL would ask a terminal
    except ssl.SSLError as error:
        why = "does not belong to the first certificate" if error.reason == "KEY_VALUES_MISMATCH" else f"cannot be opened ({KEY_PASSWORD})"
        raise OptionError(f"{name}: the private key {why}, or there is none in PEM") from None
    except (OSError, ValueError) as error:
        raise OptionError(f"{name} {path} {_why(error)}") from None


def _is_pem(texts: Mapping[str, str], type_name: str, text_name: str) -> bool:
    store_type = texts.get(type_name, JAVA_TYPES[0]).upper()
    if store_type not in (PEM, *JAVA_TYPES):
        raise OptionError(f"{type_name} is {store_type!r}: it is {PEM}, {' or '.join(JAVA_TYPES)}")
    if store_type != PEM and text_name in texts:
        raise OptionError(f"{text_name} is a text in PEM: set {type_name} to {PEM}, which is {JAVA_TYPES[0]} unless it is set")
    return store_type == PEM


def _why(error: Exception) -> str:
    if isinstance(error, stores.StoreError):
        return str(error)
    return (
        f"cannot be read: {error.strerror}" if isinstance(error, OSError) and error.strerror else "cannot be read: it is no text in ASCII"
    )


@contextmanager
def _memory_file(data: bytes) -> Iterator[str]:
    """A path under which this process can read `data`: Python's ssl loads private keys by path only. It is on no disk where the system has
    memfd, else in a file for this user alone."""
    if not hasattr(os, "memfd_create"):
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            yield file.name
        return
    descriptor = os.memfd_create("barnabas-key", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
