"""What is the least that can be called a broker?

A relay in memory: AMQP 1.0 in, AMQP 1.0 out, on the same codec as the load. Messages to a queue go to one of its
receivers each, messages to a topic to all of them. A message is accepted when it is in memory, kept until its receiver
has settled it, and offered again when that receiver goes away. Senders get credit only while the queue is short, so
memory is bounded. With TLS where a certificate is given. Nothing is written to disk. It exists so that a first run
needs nothing installed.
"""
