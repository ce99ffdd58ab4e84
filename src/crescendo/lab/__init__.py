"""Hosts of a laboratory as namespaces of this machine: a network of their own, names and clocks of their own."""
