"""A simulated cluster that is secured: what tests/simulation/secured/world.py does and checks, on nodes that log in to each other, whose
metadata are not of the same age, and of which one decides for the others.

Brokers log in to each other by PLAIN or SCRAM, and to controllers by PLAIN: the credentials of SCRAM would be in the log of the quorum that
the voters elect. A scout without any right asks controllers on their own listener, which is open before the ACLs are loaded.
"""

from __future__ import annotations

import random
from typing import Any

from protocol.errors import ErrorCode
from tests.simulation.clients import Client
from tests.simulation.cluster_world import ClusterWorld
from tests.simulation.secured.users import Scout
from tests.simulation.secured.world import LISTENER, NODE, PLAIN_MODULE, SCOUT, SecuredWorld, password_of
from tests.simulation.shapes import CONTROLLER_PORT
from tests.simulation.world import PORT

SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


class SecuredClusterWorld(SecuredWorld, ClusterWorld):
    """Most clusters have three nodes."""

    OPTIONS = " --security --nodes 3"
    UNCLEAN_SHARE = REBORN_SHARE = TRIMMED_SHARE = 0.0
    SCRAM_SHARE = 0.3  # of the seeds have brokers that log in to each other by SCRAM

    def _draw_settings(self) -> dict[str, str]:
        users = f'user_{NODE}="{password_of(NODE)}" user_{SCOUT}="{password_of(SCOUT)}"'
        self._has_scram = random.Random(f"{self.seed}:scram of nodes").random() < self.SCRAM_SHARE
        settings = {
            **super()._draw_settings(),
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.controller.plain.sasl.jaas.config": (
                f'{PLAIN_MODULE} required username="{NODE}" password="{password_of(NODE)}" {users};'
            ),
        }
        if self._has_scram:
            settings["sasl.mechanism.inter.broker.protocol"] = "SCRAM-SHA-256"
            login = f'{SCRAM_MODULE} required username="{NODE}" password="{password_of(NODE)}";'
            settings[f"listener.name.{LISTENER.lower()}.scram-sha-256.sasl.jaas.config"] = login
        return settings

    def _client(self, kind: type[Any], name: str, **arguments: Any) -> Any:
        """A former coordinator that hung, and has not heard of its successor, does not know a group that is younger. Members whose rights
        change look for their coordinator more often than others, and find that one."""
        client = super()._client(kind, name, **arguments)
        client.retried |= {ErrorCode.GROUP_ID_NOT_FOUND}
        return client

    def _scram_users(self) -> list[str]:
        return [f"SCRAM-SHA-256=[name={NODE},password={password_of(NODE)}]"] if self._has_scram else []

    def _listeners(self, host: str, roles: str) -> dict[str, str]:
        listeners = {"broker": f"{LISTENER}://{host}:{PORT}", "controller": f"CONTROLLER://{host}:{CONTROLLER_PORT}"}
        return {
            "listeners": ",".join(listeners[role] for role in roles.split(",")),
            "listener.security.protocol.map": f"{LISTENER}:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        }

    def _make_clients(self) -> list[Client]:
        addresses = [(f"node{node_id}", CONTROLLER_PORT) for node_id in self.shape.controller_ids]
        return [*super()._make_clients(), self._client(Scout, "scout", controllers=addresses)]
