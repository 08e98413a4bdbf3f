"""`barnabas perf`: load for a cluster, Barnabas's or Apache Kafka's, and what came of it."""
