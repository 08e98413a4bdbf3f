"""A network of a cluster's own that can be cut: a namespace for each node, all on one bridge of this machine. Needs root.

The tests and their clients are on the bridge as well. A cut is a blackhole route in the sender's namespace: packets vanish, connections
stay open and hear nothing, as when a switch fails.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Iterable

COMMAND_TIMEOUT_S = 120
CLIENTS = 254
"""The last byte of the address that the tests and their clients have."""


def missing_network() -> str | None:
    """What keeps networks from being made; None when nothing does."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None or shutil.which("nsenter") is None:
        return "network namespaces need ip and nsenter; install them with: sudo apt-get install -y iproute2 util-linux"
    name = f"b{os.getpid()}probe"
    if subprocess.run(["ip", "link", "add", name, "type", "bridge"], check=False, capture_output=True).returncode:
        return "network namespaces need bridges, which this machine refuses to make"
    _ip("link", "del", name)
    return None


class ClusterNetwork:
    """Owns the bridge and the namespaces; `close` takes them away."""

    def __init__(self, node_ids: Iterable[int]) -> None:
        source = random.SystemRandom()
        self._subnet = f"10.{source.randrange(200, 250)}.{source.randrange(250)}"
        self._name = f"b{os.getpid()}"
        self._cuts: set[tuple[int, int]] = set()
        self.hosts = {node_id: f"{self._subnet}.{node_id}" for node_id in node_ids}
        try:
            _ip("link", "add", self._name, "type", "bridge")
            _ip("addr", "add", f"{self._subnet}.{CLIENTS}/24", "dev", self._name)
            _ip("link", "set", self._name, "up")
            for node_id in self.hosts:
                self._connect(node_id)
        except BaseException:
            self.close()
            raise

    def enter(self, node_id: int) -> list[str]:
        """What a command is given to, so that it runs in the node's namespace."""
        return ["nsenter", f"--net=/var/run/netns/{self._namespace(node_id)}"]

    def cut(self, sender: int, receiver: int) -> None:
        """From now on nothing that the node `sender` sends reaches `receiver`, a node or CLIENTS."""
        if (sender, receiver) not in self._cuts:
            self._cuts.add((sender, receiver))
            _ip("-n", self._namespace(sender), "route", "add", "blackhole", f"{self._subnet}.{receiver}/32")

    def heal(self) -> None:
        """Every packet arrives again."""
        for sender, receiver in self._cuts:
            _ip("-n", self._namespace(sender), "route", "del", "blackhole", f"{self._subnet}.{receiver}/32")
        self._cuts.clear()

    def close(self) -> None:
        # The ports first: a namespace's end takes them along some time later, and the next network has ports of the same names.
        for kind, name in (
            *(("link", self._port(node_id)) for node_id in self.hosts),
            *(("netns", self._namespace(node_id)) for node_id in self.hosts),
            ("link", self._name),
        ):
            subprocess.run(["ip", kind, "del", name], check=False, capture_output=True, timeout=COMMAND_TIMEOUT_S)

    def _connect(self, node_id: int) -> None:
        namespace, port = self._namespace(node_id), self._port(node_id)
        _ip("netns", "add", namespace)
        _ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        _ip("link", "set", port, "master", self._name, "up")
        _ip("-n", namespace, "addr", "add", f"{self.hosts[node_id]}/24", "dev", "eth0")
        _ip("-n", namespace, "link", "set", "eth0", "up")
        _ip("-n", namespace, "link", "set", "lo", "up")

    def _port(self, node_id: int) -> str:
        return f"{self._name}p{node_id}"

    def _namespace(self, node_id: int) -> str:
        return f"{self._name}n{node_id}"


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=COMMAND_TIMEOUT_S)
