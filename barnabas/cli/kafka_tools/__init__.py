"""Apache Kafka's tools by their names and options, for the scripts of container images: healthchecks and init containers call them."""
