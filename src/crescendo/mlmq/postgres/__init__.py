"""An embedded PostgreSQL, for users without one."""

from crescendo.mlmq.postgres.embedded_server import Server, start

__all__ = ["Server", "start"]
