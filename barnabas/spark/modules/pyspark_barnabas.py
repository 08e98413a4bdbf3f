"""Spark looks for installed modules named pyspark_* by itself, and finds `format("barnabas")` here."""

from barnabas.spark.data_source import DefaultSource

__all__ = ["DefaultSource"]
