"""Asks the other nodes of the quorum for their cluster id, by DescribeCluster at their controller listeners (KIP-919).

A node whose log directories have another cluster's id cannot take part in the quorum: all its requests are answered with
INCONSISTENT_CLUSTER_ID. Kafka logs an error for each answer and continues, until initial.broker.registration.timeout.ms ends its broker.
Here the node stops with one log line when a majority of the voters reports the same other id. A majority is needed because a single answer
does not tell which of the two nodes is wrong.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import starmap
from typing import Any

from broker.cluster.peer_connections import PeerConnections
from broker.loop.clock import Clock, pause
from broker.quorum.voters import Address
from config.endpoints import address_text
from protocol.errors import ErrorCode
from protocol.messages.describe_cluster import DescribeClusterRequest

logger = logging.getLogger("barnabas.quorum")

ENDPOINT_CONTROLLERS = 2
ASK_TIMEOUT_MS = 2_000
ASK_AGAIN_MS = 5_000


async def ask_cluster_ids(connections: PeerConnections, addresses: Iterable[Address]) -> dict[Address, str]:
    """Returns the cluster ids that these controller listeners report. Those that do not answer in time are left out."""
    asked = dict.fromkeys(addresses)
    answers = await asyncio.gather(*(_ask(connections, address) for address in asked))
    return {address: cluster_id for address, cluster_id in zip(asked, answers, strict=True) if cluster_id}


async def _ask(connections: PeerConnections, address: Address) -> str:
    told: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def answered(response: Any | None) -> None:
        if not told.done():
            told.set_result("" if response is None or response.error_code != ErrorCode.NONE else response.cluster_id)

    connections.get(*address).send(DescribeClusterRequest(endpoint_type=ENDPOINT_CONTROLLERS), answered, timeout_ms=ASK_TIMEOUT_MS)
    return await told


class ClusterIdCheck:
    """Finds out whether this node belongs to another cluster than the quorum. Owner: QuorumServer.

    `find_voters` returns the addresses of the other voters, and the number of voters including this node. `ask` is as ask_cluster_ids.
    `on_other_cluster` is called once, with the reason why this node has to stop.
    """

    def __init__(
        self,
        cluster_id: str,
        clock: Clock,
        find_voters: Callable[[], tuple[list[Address], int]],
        ask: Callable[[list[Address]], Awaitable[Mapping[Address, str]]],
        on_other_cluster: Callable[[str], None],
    ) -> None:
        self._cluster_id = cluster_id
        self._clock = clock
        self._find_voters = find_voters
        self._ask = ask
        self._on_other_cluster = on_other_cluster
        self._told: set[Address] = set()
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Called when a voter has answered INCONSISTENT_CLUSTER_ID. Does nothing while a check is running."""
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._check())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _check(self) -> None:
        """Returns when no voter reports another id, or when this node has to stop."""
        while True:
            addresses, voters_count = self._find_voters()
            told = await self._ask(addresses)
            others = {address: cluster_id for address, cluster_id in told.items() if cluster_id != self._cluster_id}
            if not others:
                return
            for address in others.keys() - self._told:
                where = address_text(*address)
                logger.warning("the voter at %s belongs to cluster %s, this node to cluster %s", where, others[address], self._cluster_id)
            self._told |= others.keys()
            cluster_id, count = Counter(others.values()).most_common(1)[0]
            if count > voters_count // 2:
                self._on_other_cluster(self._reason(cluster_id, [address for address in others if others[address] == cluster_id]))
                return
            await pause(self._clock, ASK_AGAIN_MS)

    def _reason(self, cluster_id: str, addresses: list[Address]) -> str:
        return (
            f"the log directories of this node belong to cluster {self._cluster_id}, and the voters of its quorum to cluster {cluster_id} "
            f"({', '.join(starmap(address_text, addresses))}): check what names the voters, or empty the directories and run "
            f"`barnabas format -t {cluster_id}` (docs/operations.md)"
        )


def how_to_format(addresses: Iterable[Address], told: Mapping[Address, str], *, is_automatic: bool, words: str) -> str:
    """Returns advice for an operator whose directories are not formatted although the config names other nodes of the quorum.
    `addresses` are those nodes; `told` has the cluster ids of those that answered. `is_automatic` means that the start would format the
    directories if it knew the cluster id. `words` are options of the format command."""
    ids = sorted(set(told.values()))
    named = ids[0] if len(ids) == 1 else "CLUSTER_ID"
    formatting = f"run `barnabas format -t {named}{words}` with the same --config and --override"
    command = f"start with --cluster-id {named}, or CLUSTER_ID={named} in the environment" if is_automatic else formatting
    if len(ids) == 1:
        return f"{command}: {named} is the cluster of {', '.join(starmap(address_text, told))}"
    if ids:
        claims = ", ".join(f"{address_text(*address)} says {cluster_id}" for address, cluster_id in told.items())
        return f"{command}, once it is clear which: {claims}"
    asked = ", ".join(starmap(address_text, addresses))
    return (
        f"{command}: the id is cluster.id in meta.properties of the other nodes, and none of them answers at {asked}; for a new cluster "
        "alone take one of `barnabas random-uuid`, the same for all nodes"
    )
