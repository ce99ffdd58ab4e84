"""The command line: one module per verb, with its options. What a verb needs is imported when the verb is called."""
