"""Secured simulated runs with transactions: what tests/simulation/transaction_world.py does and checks, by users whose rights to
transactional ids, topics and groups are withdrawn in the middle of transactions. A transaction whose client may not go on is aborted by its
coordinator.
"""

from __future__ import annotations

from broker.security.authorizer.acl_codes import ResourceType
from protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.simulation.applications import LevelChanger, MarkerRepeater
from tests.simulation.connection import LostError
from tests.simulation.secured.cluster import SecuredClusterWorld
from tests.simulation.secured.world import SecuredWorld
from tests.simulation.transaction_cluster import TransactionClusterWorld
from tests.simulation.transaction_world import COPY, GROUP, SOURCE, TransactionWorld
from tests.simulation.transactional import FIND_VERSION
from tests.simulation.transactional import GROUP as GROUP_KEY

TRANSACTIONAL_IDS = ("copier0", "copier1", "writer")


class SecuredTransactionWorld(SecuredWorld, TransactionWorld):
    """One broker."""

    OPTIONS = " --security --transactions"
    CONSUMER_GROUP_SHARE = MIXED_GROUP_SHARE = 0.0
    NEEDED = {
        ResourceType.TOPIC: (SOURCE, COPY), ResourceType.GROUP: (GROUP,), ResourceType.TRANSACTIONAL_ID: TRANSACTIONAL_IDS,
    }  # fmt: skip
    ADMINISTRATORS = (*SecuredWorld.ADMINISTRATORS, LevelChanger, MarkerRepeater)
    LAST_READERS = frozenset({"reader", "end-reader", "stable-reader", "final-offset-reader"})

    async def _create_topics(self) -> None:
        """The group's coordinator is looked up too: it is asked at the end, also where no copier ever had the right to find it."""
        await super()._create_topics()
        error = -1
        while error:
            try:
                found = await self.admin.ask(FindCoordinatorRequest(key=GROUP, key_type=GROUP_KEY), FIND_VERSION)
                error = found.error_code
            except LostError:
                pass
            if error:
                await self.admin.back_off()


class SecuredTransactionClusterWorld(SecuredTransactionWorld, SecuredClusterWorld, TransactionClusterWorld):
    """Most clusters have three nodes."""

    OPTIONS = " --security --transactions --nodes 3"
