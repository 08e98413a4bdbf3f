"""The network of a test's cluster: what is cut does not arrive, in that direction alone, until it is healed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import Cluster, metadata_request
from tests.support.cluster_network import ClusterNetwork, missing_network
from tests.support.requirements import needs

pytestmark = needs(missing_network())

SEND = "import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ({host!r}, 9))"
RECEIVE = (
    "import socket; s = socket.socket(type=socket.SOCK_DGRAM); s.bind(('', 9)); s.settimeout(0.5); print(flush=True); print(s.recv(9))"
)


@pytest.fixture
def network() -> Iterator[ClusterNetwork]:
    network = ClusterNetwork((1, 2, 3))
    yield network
    network.close()


def arrives(network: ClusterNetwork, sender: int, receiver: int) -> bool:
    """Whether a datagram does."""
    with subprocess.Popen(
        [*network.enter(receiver), sys.executable, "-c", RECEIVE], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as peer:
        assert peer.stdout is not None
        peer.stdout.readline()
        send = SEND.format(host=network.hosts[receiver])
        subprocess.run([*network.enter(sender), sys.executable, "-c", send], check=False, stderr=subprocess.DEVNULL)
        return peer.stdout.read() == b"b'x'\n"


def test_a_cut_is_one_way_until_it_is_healed(network: ClusterNetwork) -> None:
    network.cut(1, 2)
    assert not arrives(network, 1, 2)
    assert arrives(network, 2, 1) and arrives(network, 1, 3)

    network.heal()
    assert arrives(network, 1, 2)


def test_a_controller_that_is_cut_off_is_replaced_and_comes_back(network: ClusterNetwork, tmp_path: Path) -> None:
    settings = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}
    with Cluster(tmp_path, settings=settings, network=network) as cluster:
        cluster.create_topic("a", 3)
        cut_off = cluster.controller_id()
        for other in set(cluster.nodes) - {cut_off}:
            network.cut(cut_off, other)
            network.cut(other, cut_off)

        cluster.wait_for(lambda: cluster.controller_id() != cut_off, "another controller")
        others = [node_id for node_id in cluster.nodes if node_id != cut_off]
        cluster.wait_for(
            lambda: all(
                cut_off not in partition.isr_nodes
                for topic in cluster.ask_node(others[0], metadata_request("a"), 12).topics
                for partition in topic.partitions
            ),
            "the one that is cut off to leave every ISR",
        )
        network.heal()

        cluster.wait_in_sync("a")
        assert cluster.running == (1, 2, 3)
