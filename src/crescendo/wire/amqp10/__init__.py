"""AMQP 1.0 without sockets: types, performatives, frames, batches of transfers, and the connection built on them."""
