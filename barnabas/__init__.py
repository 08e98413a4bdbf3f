"""Barnabas for your own programs: a Kafka-speaking broker inside a test.

    with barnabas.Broker(topics={"orders": 3}) as broker:
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)

`AsyncBroker` is its twin for asyncio; `Cluster` and `AsyncCluster` are several in one cluster. `barnabas.pytest_plugin` is found by
pytest and gives fixtures. docs/testing.md has examples.

The broker never runs in your process. What is imported from here needs Python's own library only, uses relative imports, and is
loaded when it is first asked for. In an installed wheel Barnabas's own folders (broker, config, …) lie beside these modules; they are
for the process that `__main__` launches, and nothing here imports them.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers take it for true, as typing's, which takes 5 ms to import
if TYPE_CHECKING:
    from typing import Any

    from ._async_broker import AsyncBroker
    from ._async_cluster import AsyncCluster
    from ._broker import Broker
    from ._cluster import Cluster
    from ._errors import BrokerError

__all__ = ["AsyncBroker", "AsyncCluster", "Broker", "BrokerError", "Cluster"]

_MODULES = {
    "AsyncBroker": "._async_broker",
    "AsyncCluster": "._async_cluster",
    "Broker": "._broker",
    "BrokerError": "._errors",
    "Cluster": "._cluster",
}


def __getattr__(name: str) -> Any:
    """Load what is asked for: `import barnabas` itself costs a program no time that it may not need (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_MODULES[name], __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
