"""AMQP 0-9-1 without sockets: values, methods, frames, batches of messages, and the connection built on them."""
