"""Suites that others wrote for Apache Kafka, run against this broker."""
