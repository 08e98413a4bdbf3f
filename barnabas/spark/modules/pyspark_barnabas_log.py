"""Spark looks for installed modules named pyspark_* by itself, one source each, and finds `format("barnabas-log")` here."""

from barnabas.spark.log.data_source import DefaultSource

__all__ = ["DefaultSource"]
