"""An embedded PostgreSQL, for whoever has none."""

from crescendo.mlmq.postgres.server import Server, start

__all__ = ["Server", "start"]
