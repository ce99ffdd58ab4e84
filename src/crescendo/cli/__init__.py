"""The command line: one module a verb, each imported only when its verb is called."""
