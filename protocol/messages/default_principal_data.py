"""DefaultPrincipalData: who a client is, as a broker tells the controller in an Envelope, behind the version as an int16 (KIP-590)."""

from __future__ import annotations

from ..schema import Bool, String, message


@message(versions=(0, 0), flexible=0)
class DefaultPrincipalData:
    type: String = ""
    name: String = ""
    token_authenticated: Bool = False
