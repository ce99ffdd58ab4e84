"""How do several jobs run at once?

In threads: while one is planned or compiled, another computes. Building a DataFrame costs as much as a small job, so
that is part of what a thread does. Knows nothing of what the jobs compute.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import SparkSession

from crescendo.pipeline.spark.session import close_session


def run_parallel(jobs: Sequence[Callable[[], None]], spark: SparkSession) -> None:
    """Run all jobs. Raises what the first of them raised."""
    with ThreadPoolExecutor(max(len(jobs), 1)) as pool:
        running = [pool.submit(job) for job in jobs]
        try:
            for each in running:
                each.result()
        except KeyboardInterrupt:  # leaving the pool waits for jobs in progress, so end those first
            pool.shutdown(wait=False, cancel_futures=True)
            close_session(spark, at_once=True)
            raise
