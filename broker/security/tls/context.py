"""ssl.SSLContext of the ssl.* properties, for a listener and for this node's connections to others.

A change of the properties makes a new context, never alters one: on the old one session tickets would still let in a client whose
certificate was removed. Private keys reach OpenSSL by a file in memory.

Source: DefaultSslEngineFactory.createSslEngine and createSSLContext.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable

from broker.security.tls import pem
from broker.security.tls.certificate import Certificate
from broker.security.tls.cipher_suites import PROTOCOLS_KEY, SUITES_KEY, TLS_1_2, TLS_1_3, check_protocols, openssl_suites
from broker.security.tls.files import memory_file
from broker.security.tls.pem import Block
from broker.security.tls.settings import ClientAuth, TlsSettings
from broker.security.tls.stores import KeyMaterial, ReadFile, load_key, load_trust
from config.properties import ConfigError

_KEY_FAILURES = {
    "KEY_VALUES_MISMATCH": "the private key does not belong to the first certificate",
    "NO_CERTIFICATE_ASSIGNED": "the private key does not belong to the first certificate",  # another algorithm
    "EE_KEY_TOO_SMALL": "the key of the certificate is too small for this OpenSSL",
    "CA_MD_TOO_WEAK": "the signature of the certificate is too weak for this OpenSSL",
}
_VERSIONS = {TLS_1_2: ssl.TLSVersion.TLSv1_2, TLS_1_3: ssl.TLSVersion.TLSv1_3}


class _NoPasswordError(Exception):
    """The key is encrypted, and no password is set."""


def server_context(settings: TlsSettings, read_file: ReadFile) -> ssl.SSLContext:
    """For a listener. Raises ConfigError.

    Without a trust store no client certificate can be asked for: Java would take any that one of its public authorities has signed."""
    key = load_key(settings, read_file)
    if key is None:
        raise settings.refusal("keystore.location", "a listener with TLS needs a key store")
    trust = load_trust(settings, read_file)
    if settings.client_auth is not ClientAuth.NONE and trust is None:
        why = f"ssl.client.auth={settings.client_auth.value} needs a trust store; Kafka would trust all of Java's public authorities"
        raise settings.refusal("truststore.location", why)
    context = _context(ssl.PROTOCOL_TLS_SERVER, settings)
    _load_key(context, key, settings)
    _load_trust(context, trust or (), settings)
    context.verify_mode = {
        ClientAuth.NONE: ssl.CERT_NONE,
        ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
        ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
    }[settings.client_auth]
    return context


def client_context(settings: TlsSettings, read_file: ReadFile) -> ssl.SSLContext:
    """For connections to other nodes; without a trust store the system's authorities are trusted. Raises ConfigError."""
    key, trust = load_key(settings, read_file), load_trust(settings, read_file)
    algorithm = settings.endpoint_identification_algorithm
    if algorithm.lower() not in ("", "https"):
        raise settings.refusal("endpoint.identification.algorithm", "is https, or empty for no check of the host's name")
    context = _context(ssl.PROTOCOL_TLS_CLIENT, settings)
    context.check_hostname = bool(algorithm)
    context.verify_mode = ssl.CERT_REQUIRED
    if key is not None:
        _load_key(context, key, settings)
    if trust is None:
        context.load_default_certs()
    else:
        _load_trust(context, trust, settings)
    return context


def _context(protocol: ssl._SSLMethod, settings: TlsSettings) -> ssl.SSLContext:
    enabled = check_protocols(settings.enabled_protocols, settings.key(PROTOCOLS_KEY.removeprefix("ssl.")))
    names = ""
    if settings.cipher_suites:
        names, enabled = openssl_suites(settings.cipher_suites, enabled, settings.key(SUITES_KEY.removeprefix("ssl.")))
    context = ssl.SSLContext(protocol)
    context.minimum_version = min(_VERSIONS[name] for name in enabled)
    context.maximum_version = max(_VERSIONS[name] for name in enabled)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as in Java, any certificate of the trust store ends a chain
    if names:
        try:
            context.set_ciphers(names)
        except ssl.SSLError as e:
            raise settings.refusal("cipher.suites", "this OpenSSL has none of the cipher suites") from e
    return context


def _load_key(context: ssl.SSLContext, key: KeyMaterial, settings: TlsSettings) -> None:
    chain = [Block("CERTIFICATE", certificate.der) for certificate in key.chain]
    with memory_file(pem.write([key.key, *chain])) as path:
        try:
            context.load_cert_chain(path, password=_password_of(key))
        except _NoPasswordError as e:
            raise settings.refusal("key.password", "the private key is encrypted, and there is no password") from e
        except ValueError as e:
            raise settings.refusal("key.password", "the password is too long for OpenSSL") from e
        except ssl.SSLError as e:
            raise _key_refusal(e, key, settings) from e


def _key_refusal(error: ssl.SSLError, key: KeyMaterial, settings: TlsSettings) -> ConfigError:
    why = _KEY_FAILURES.get(error.reason or "")
    if why is None and key.key.label == "ENCRYPTED PRIVATE KEY":
        return settings.refusal("key.password", "the password does not open the key")
    name = "keystore.location" if settings.keystore_key is None else "keystore.key"
    return settings.refusal(name, why or "OpenSSL cannot load the private key or a certificate")


def _password_of(key: KeyMaterial) -> Callable[[], str]:
    """OpenSSL asks for it if the key is encrypted; without a callback it would ask on the terminal."""

    def answer() -> str:
        if key.key_password is None:
            raise _NoPasswordError
        return key.key_password

    return answer


def _load_trust(context: ssl.SSLContext, trust: tuple[Certificate, ...], settings: TlsSettings) -> None:
    if not trust:
        return
    try:
        context.load_verify_locations(cadata=b"".join(certificate.der for certificate in trust))
    except ssl.SSLError as e:
        name = "truststore.certificates" if settings.truststore_certificates is not None else "truststore.location"
        raise settings.refusal(name, "OpenSSL cannot load a certificate") from e
