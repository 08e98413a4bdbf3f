"""How PKCS12 files are encrypted by a password: PBES2 with AES, as keytool and openssl write today, triple DES, and RC2 of older Java.

Source: RFC 7292, appendix B; RFC 8018.
"""

from __future__ import annotations

import hashlib

from broker.security.tls import rc2
from broker.security.tls.der import INTEGER, OCTET_STRING, SEQUENCE, Element, children_of, content_of, object_identifier
from broker.security.tls.jks import PasswordError, StoreError

FOR_KEY, FOR_VECTOR, FOR_MAC = 1, 2, 3
ITERATIONS_MAX = 1_000_000
"""keytool writes 10,000."""

_PBES2 = "1.2.840.113549.1.5.13"
_PBKDF2 = "1.2.840.113549.1.5.12"
_TRIPLE_DES = "1.2.840.113549.1.12.1.3"
_RC2_KEY_SIZES = {"1.2.840.113549.1.12.1.5": 16, "1.2.840.113549.1.12.1.6": 5}
_AES_KEY_SIZES = {"2.16.840.1.101.3.4.1.2": 16, "2.16.840.1.101.3.4.1.22": 24, "2.16.840.1.101.3.4.1.42": 32}
_HASHES = {
    "1.3.14.3.2.26": "sha1",
    "2.16.840.1.101.3.4.2.1": "sha256",
    "2.16.840.1.101.3.4.2.2": "sha384",
    "2.16.840.1.101.3.4.2.3": "sha512",
}
_HMACS = {f"1.2.840.113549.2.{number}": name for number, name in ((7, "sha1"), (9, "sha256"), (10, "sha384"), (11, "sha512"))}
_BLOCK_SIZES = {"sha1": 64, "sha256": 64, "sha384": 128, "sha512": 128}


def hash_name(number: str) -> str:
    """hashlib's name of a digest's object identifier. Raises StoreError."""
    name = _HASHES.get(number)
    if name is None:
        raise StoreError(f"the PKCS12 file's digest {number} is not supported")
    return name


def derive(hash_name: str, password: str, salt: bytes, iterations: int, purpose: int, size: int = 0) -> bytes:
    """PKCS12's own key derivation; as many bytes as the digest has where `size` is 0."""
    _check(iterations)
    block_size = _BLOCK_SIZES[hash_name]
    secret = password.encode("utf-16-be", "surrogatepass") + b"\0\0"
    mixed = bytearray(_fill(salt, block_size) + _fill(secret, block_size))
    result = b""
    while True:
        digest = hashlib.new(hash_name, bytes((purpose,)) * block_size + mixed).digest()
        for _ in range(iterations - 1):
            digest = hashlib.new(hash_name, digest).digest()
        result += digest
        if len(result) >= size:
            return result[: size or None]
        addend = int.from_bytes(_fill(digest, block_size)[:block_size], "big") + 1
        for start in range(0, len(mixed), block_size):
            total = int.from_bytes(mixed[start : start + block_size], "big") + addend
            mixed[start : start + block_size] = (total & ((1 << 8 * block_size) - 1)).to_bytes(block_size, "big")


def decrypt(algorithm: Element, content: bytes, password: str) -> bytes:
    """The plain content. Raises StoreError, and PasswordError if the padding shows that the password does not fit."""
    identifier, *parameters = children_of(algorithm, SEQUENCE, 1)
    number = object_identifier(identifier)
    if not parameters or not content or len(content) % 8:
        raise StoreError("an encrypted part is cut off")
    if number == _PBES2:
        block_size, plain = 16, _decrypt_pbes2(parameters[0], content, password)
    elif number == _TRIPLE_DES:
        block_size, plain = 8, _decrypt_triple_des(parameters[0], content, password)
    elif number in _RC2_KEY_SIZES:
        key, vector = _derive_both(parameters[0], password, _RC2_KEY_SIZES[number])
        block_size, plain = 8, rc2.decrypt_cbc(key, vector, content)
    else:
        raise StoreError(f"the PKCS12 file's encryption {number} is not supported")
    padding = plain[-1]
    if not 1 <= padding <= block_size or plain[-padding:] != bytes((padding,)) * padding:
        raise PasswordError("the password does not fit")
    return plain[:-padding]


def _decrypt_pbes2(parameters: Element, content: bytes, password: str) -> bytes:
    derivation, scheme = children_of(parameters, SEQUENCE, 2)[:2]
    kind, details = children_of(derivation, SEQUENCE, 2)[:2]
    cipher_kind, vector = children_of(scheme, SEQUENCE, 2)[:2]
    key_size = _AES_KEY_SIZES.get(object_identifier(cipher_kind))
    if object_identifier(kind) != _PBKDF2 or key_size is None or len(vector.content) != 16 or len(content) % 16:
        raise StoreError("the PKCS12 file's encryption is not AES by PBKDF2")
    salt, iterations, *rest = children_of(details, SEQUENCE, 2)
    function = next((element for element in rest if element.tag == SEQUENCE), None)
    hmac_hash = _HMACS.get(object_identifier(children_of(function, SEQUENCE, 1)[0])) if function else "sha1"
    if hmac_hash is None:
        raise StoreError("the PKCS12 file's HMAC is not supported")
    key = hashlib.pbkdf2_hmac(hmac_hash, password.encode(), content_of(salt, OCTET_STRING), _number(iterations), key_size)
    from cryptography.hazmat.primitives.ciphers import Cipher, modes
    from cryptography.hazmat.primitives.ciphers.algorithms import AES

    decryptor = Cipher(AES(key), modes.CBC(content_of(vector, OCTET_STRING))).decryptor()
    return decryptor.update(content) + decryptor.finalize()


def _decrypt_triple_des(parameters: Element, content: bytes, password: str) -> bytes:
    key, vector = _derive_both(parameters, password, 24)
    from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
    from cryptography.hazmat.primitives.ciphers import Cipher, modes

    decryptor = Cipher(TripleDES(key), modes.CBC(vector)).decryptor()
    return decryptor.update(content) + decryptor.finalize()


def _derive_both(parameters: Element, password: str, key_size: int) -> tuple[bytes, bytes]:
    """Key and initialization vector of PKCS12's own ways to encrypt."""
    salt_element, iterations = children_of(parameters, SEQUENCE, 2)[:2]
    salt, count = content_of(salt_element, OCTET_STRING), _number(iterations)
    return derive("sha1", password, salt, count, FOR_KEY, key_size), derive("sha1", password, salt, count, FOR_VECTOR, 8)


def _number(element: Element) -> int:
    return _check(int.from_bytes(content_of(element, INTEGER)[:5], "big"))


def _check(iterations: int) -> int:
    if not 1 <= iterations <= ITERATIONS_MAX:
        raise StoreError(f"{ITERATIONS_MAX} iterations at most are supported")
    return iterations


def _fill(data: bytes, block_size: int) -> bytes:
    """Repeated up to a multiple of the block's size."""
    size = -(-len(data) // block_size) * block_size
    return (data * (size // len(data) + 1))[:size] if data else b""
