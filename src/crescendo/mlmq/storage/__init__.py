"""What MLMQ stores in PostgreSQL, and how requests access it."""

from crescendo.mlmq.storage.database import Database, Served
from crescendo.mlmq.storage.failures import StorageRejected, StorageUnavailable
from crescendo.mlmq.storage.schema import check_schema, initialise

__all__ = ["Database", "Served", "StorageRejected", "StorageUnavailable", "check_schema", "initialise"]
