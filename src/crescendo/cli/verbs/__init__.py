"""The arguments and options of every verb. A verb imports its implementation only when it is called."""
