"""Sensors: they read SQL only, never Kafka; cursors and run keys only save work, the truth is in the control plane (SPEC A2)."""
