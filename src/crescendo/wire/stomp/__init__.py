"""STOMP 1.0 to 1.2 without sockets: escaping, frames, commands, batches of messages, and the connection over them."""
