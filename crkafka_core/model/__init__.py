"""The nouns of the system: frozen rows, errors, time limits. Pure: no I/O, no clock, no threads."""
