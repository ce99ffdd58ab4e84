"""What MLMQ keeps in PostgreSQL, and how requests get at it."""

from crescendo.mlmq.storage.database import Database, Served
from crescendo.mlmq.storage.failures import StorageAway, StorageRefuses
from crescendo.mlmq.storage.schema import check_schema, initialise

__all__ = ["Database", "Served", "StorageAway", "StorageRefuses", "check_schema", "initialise"]
