"""A table for each topic that a pattern matches, now or later, by one line."""
