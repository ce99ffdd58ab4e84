"""The types of Spark that signatures outside the pipeline name, for type checkers only."""

from pyspark.sql import DataFrame, SparkSession

__all__ = ["DataFrame", "SparkSession"]
