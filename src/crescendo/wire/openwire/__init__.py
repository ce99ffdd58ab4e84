"""OpenWire 1 to 12 without sockets, in its loose encoding: values, commands, batches, and the connection over them."""
