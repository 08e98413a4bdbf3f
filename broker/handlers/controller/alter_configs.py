"""AlterConfigs (key 33) on controller listeners. Serves v0–v2.

Behaviour: configs are replaced. The broker that forwards it is answered as its client would be. NOT_CONTROLLER where this node does not
lead the metadata quorum; the answer comes once the records are committed.

Source: ControllerApis.handleLegacyAlterConfigs.
"""

from __future__ import annotations

from broker.handlers.configs.alter_configs import build, error_response

__all__ = ["build", "error_response"]
