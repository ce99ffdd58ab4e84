"""What is the smallest program that can be called a broker?

An in-memory relay: AMQP 1.0 in, AMQP 1.0 out, on the same codec as the load. Each message to a queue goes to one of its
receivers, a message to a topic to all of them. A message is accepted when it is in memory, kept until its receiver
settles it, and redelivered when that receiver disconnects. Senders get credit only while the queue is short, so memory
is bounded. Serves TLS when it is given a certificate. Writes nothing to disk. It exists so that a first run needs
nothing installed.
"""
