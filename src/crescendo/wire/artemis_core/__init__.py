"""Core, the native protocol of Apache ActiveMQ Artemis, without I/O."""
