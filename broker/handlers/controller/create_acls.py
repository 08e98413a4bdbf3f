"""CreateAcls (key 30) on controller listeners. Serves v1–v3.

Behaviour: as on client listeners.
"""

from __future__ import annotations

from broker.handlers.cluster.create_acls import build

__all__ = ["build"]
