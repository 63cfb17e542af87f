"""The protocol as pure code: no I/O, no clock, no threads."""

SPOKEN = 1
"""The version of the protocol that this program speaks, which the region's row has too. Raised when a rule changes such that an older
member, host or driver would break it."""
