"""ssl.cipher.suites and ssl.enabled.protocols: Java's names, and what OpenSSL is told for them."""

from __future__ import annotations

from collections.abc import Sequence

from config.properties import ConfigError

SUITES_KEY = "ssl.cipher.suites"
PROTOCOLS_KEY = "ssl.enabled.protocols"

TLS_1_2, TLS_1_3 = "TLSv1.2", "TLSv1.3"

TLS_1_3_SUITES = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
"""Python before 3.15 cannot choose among them: OpenSSL uses all three."""

TLS_1_2_SUITES = {
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384": "DHE-RSA-AES256-GCM-SHA384",
    "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256": "DHE-RSA-AES128-GCM-SHA256",
    "TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "DHE-RSA-CHACHA20-POLY1305",
    "TLS_DHE_DSS_WITH_AES_256_GCM_SHA384": "DHE-DSS-AES256-GCM-SHA384",
    "TLS_DHE_DSS_WITH_AES_128_GCM_SHA256": "DHE-DSS-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384": "ECDHE-ECDSA-AES256-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384": "ECDHE-RSA-AES256-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_DHE_RSA_WITH_AES_256_CBC_SHA256": "DHE-RSA-AES256-SHA256",
    "TLS_DHE_RSA_WITH_AES_128_CBC_SHA256": "DHE-RSA-AES128-SHA256",
    "TLS_DHE_DSS_WITH_AES_256_CBC_SHA256": "DHE-DSS-AES256-SHA256",
    "TLS_DHE_DSS_WITH_AES_128_CBC_SHA256": "DHE-DSS-AES128-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_DHE_RSA_WITH_AES_256_CBC_SHA": "DHE-RSA-AES256-SHA",
    "TLS_DHE_RSA_WITH_AES_128_CBC_SHA": "DHE-RSA-AES128-SHA",
    "TLS_DHE_DSS_WITH_AES_256_CBC_SHA": "DHE-DSS-AES256-SHA",
    "TLS_DHE_DSS_WITH_AES_128_CBC_SHA": "DHE-DSS-AES128-SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA256": "AES256-SHA256",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
}
"""What Java 17 has by default, by Java's names; the values are OpenSSL's."""

_SIGNALS = ("TLS_EMPTY_RENEGOTIATION_INFO_SCSV",)
"""Not a suite, and always on in OpenSSL."""


def check_protocols(protocols: Sequence[str], key: str = PROTOCOLS_KEY) -> frozenset[str]:
    """The enabled protocols; an empty property enables both. Raises ConfigError."""
    for protocol in protocols:
        if protocol not in (TLS_1_2, TLS_1_3):
            raise _refusal(key, f"{protocol} is not supported: {TLS_1_2} and {TLS_1_3} are")
    return frozenset(protocols or (TLS_1_2, TLS_1_3))


def openssl_suites(suites: Sequence[str], protocols: frozenset[str], key: str = SUITES_KEY) -> tuple[str, frozenset[str]]:
    """What `SSLContext.set_ciphers` is told for TLS 1.2, and the protocols that are left, for a list that is not empty. Raises ConfigError.

    A list with no suite of a protocol switches that off, as in Java. One that leaves out some of TLS 1.3's, or all of them while TLS 1.3 is
    enabled, is refused: OpenSSL would use them.
    """
    unknown = [suite for suite in suites if suite not in TLS_1_2_SUITES and suite not in (*TLS_1_3_SUITES, *_SIGNALS)]
    if unknown:
        raise _refusal(key, f"{unknown[0]} is not a cipher suite that is supported here, by Java's name")
    left_out = [suite for suite in TLS_1_3_SUITES if suite not in suites]
    if left_out and TLS_1_3 in protocols:
        why = f"the list leaves out {', '.join(left_out)}, and {TLS_1_3} is enabled: Python's TLS cannot switch off some of its suites"
        raise _refusal(key, f"{why}. List all three, or leave {TLS_1_3} out of {PROTOCOLS_KEY}")
    names = [TLS_1_2_SUITES[suite] for suite in suites if suite in TLS_1_2_SUITES]
    left = protocols if names else protocols - {TLS_1_2}
    if not left:
        raise _refusal(key, f"the list has no suite of {', '.join(sorted(protocols))}")
    return ":".join(names), left


def _refusal(key: str, why: str) -> ConfigError:
    return ConfigError(key, None, why, message=f"{key}: {why}")
