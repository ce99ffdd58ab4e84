"""MLMQ: a message queue whose state lives in PostgreSQL and whose brokers hold none."""
