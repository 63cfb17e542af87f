"""How early a cut's run is launched: what the trigger's sensor takes off the time at which the cut is due, and the run's op waits for."""

AHEAD = 0.75
"""Seconds: about what Dagster takes to begin a run's first op."""
