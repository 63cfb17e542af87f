"""The protocol as pure code: no I/O, no clock, no threads."""
