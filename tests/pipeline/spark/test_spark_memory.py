"""What a long session needs of its JVM."""

from pyspark.sql import SparkSession


def test_a_session_of_many_small_analyses_has_room_for_its_compiled_code(spark: SparkSession) -> None:
    """With the quick compiler alone, as in the tests, Java would reserve 48 MB, and end when they are full."""
    assert spark.sparkContext._jvm is not None
    pools = spark.sparkContext._jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    reserved = sum(pool.getUsage().getMax() for pool in pools if pool.getName().startswith("Code"))
    assert reserved >= 200 * 2**20
