"""MQTT 3.1.1 and 5 without sockets: values, packets, batches of publications, and the connection over them."""
