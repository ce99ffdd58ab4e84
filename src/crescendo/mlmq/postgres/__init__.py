"""An embedded PostgreSQL, for users without one."""

from crescendo.mlmq.postgres.server import Server, start

__all__ = ["Server", "start"]
