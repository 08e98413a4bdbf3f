"""New TLS connections, one after the other: handshake, one ApiVersions, end. No session is resumed.

Prints the result as JSON: connections, seconds, and the CPU seconds of the broker.
"""

from __future__ import annotations

import argparse
import json
import socket
import ssl
import sys
from time import perf_counter, process_time

from bench.usage import cpu_seconds

API_VERSIONS_0 = bytes.fromhex("0000000a 0012 0000 00000001 ffff")


def run(options: argparse.Namespace) -> dict[str, float]:
    context = ssl.create_default_context(cafile=options.ca)
    broker_cpu = 0.0
    for count in (options.warmup, options.connections):
        broker_cpu, cpu, started = cpu_seconds(*options.broker_pid), process_time(), perf_counter()
        for _ in range(count):
            plain = socket.create_connection((options.host, options.tls_port))
            with context.wrap_socket(plain, server_hostname="localhost") as connection:
                connection.sendall(API_VERSIONS_0)
                if not connection.recv(65536):
                    raise RuntimeError("the broker closed the connection")
    seconds = perf_counter() - started
    return {
        "connections": options.connections,
        "seconds": seconds,
        "client_cpu_seconds": process_time() - cpu,
        "broker_cpu_seconds": cpu_seconds(*options.broker_pid) - broker_cpu,
    }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="new TLS connections")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--tls-port", type=int, required=True)
    parser.add_argument("--ca", required=True)
    parser.add_argument("--connections", type=int, default=1_000)
    parser.add_argument("--warmup", type=int, default=200)
    parser.add_argument("--broker-pid", type=int, action="append", default=[])
    print(json.dumps(run(parser.parse_args(arguments))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
