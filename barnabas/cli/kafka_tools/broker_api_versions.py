"""kafka-broker-api-versions: the APIs of every broker, with their versions.

Health checks call it at a listener whose advertised address is only for the outside: as in Kafka's tool, a broker that does not answer
there gets a line, and the exit code is 0 once one broker has answered.
"""

from __future__ import annotations

import argparse

from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, CommandError
from barnabas.cli.kafka_tools.run import add_connection, settings_of
from broker.server.version import VERSION
from protocol.apis import DECLARED
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.metadata import MetadataRequest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)


def run(options: argparse.Namespace) -> int:
    asked = ApiVersionsRequest(client_software_name="barnabas", client_software_version=VERSION)
    with Connection(settings_of(options)) as connection:
        for broker in sorted(connection.wire().request(MetadataRequest(topics=[])).brokers, key=lambda each: int(each.node_id)):
            address = f"{broker.host}:{broker.port}"
            name = f"{address} (id: {broker.node_id} rack: {broker.rack or 'null'} isFenced: false)"
            try:
                answer = connection.wire(broker.node_id, address=address).request(asked)
            except (CommandError, OSError) as e:
                print(f"{name} -> ERROR: {e}")
                continue
            served = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
            print(f"{name} -> (")
            print(",\n".join(_line(key, *versions) for key, versions in sorted(served.items())))
            print(")")
    return DONE


def _line(key: int, lowest: int, highest: int) -> str:
    api = DECLARED.get(key)
    told = f"{lowest}" if lowest == highest else f"{lowest} to {highest}"
    if api is None:
        return f"\tUNKNOWN({key}): {told}"
    usable = min(highest, api.max_version)
    return f"\t{api.name}({key}): {told} [usable: {usable if usable >= max(lowest, api.min_version) else 'none'}]"
