"""From one description of a network to its configuration, its picture and the running network."""
