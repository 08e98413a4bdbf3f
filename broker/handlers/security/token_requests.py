"""Who may ask for anything about delegation tokens: who has proved to be somebody, and not by a token.

Source: KafkaApis.allowTokenRequests, ControllerApis.allowTokenRequests.
"""

from __future__ import annotations

from broker.network.context import ConnectionFacts

ANONYMOUS = "User:ANONYMOUS"
ERROR_TIMESTAMP_MS = -1


def may_ask_for_tokens(connection: ConnectionFacts) -> bool:
    """False on PLAINTEXT, on SSL without a client certificate, and on a connection that logged in by a token. What a broker has forwarded
    is judged by the client's principal alone: the broker has looked at the client's connection."""
    if connection.is_token_authenticated:
        return False
    if connection.is_forwarded:
        return True
    protocol = connection.listener.security_protocol
    return protocol != "PLAINTEXT" and not (protocol == "SSL" and connection.principal == ANONYMOUS)
