"""Whole regions on simulated time, from a seed: real members, host, drivers and rules over edges that misbehave."""

from crkafka_core.testing.simulation.history import History, Violation
from crkafka_core.testing.simulation.plan import Fault, Plan, plan
from crkafka_core.testing.simulation.run import simulate
from crkafka_core.testing.simulation.shrink import shrink

__all__ = ["Fault", "History", "Plan", "Violation", "plan", "shrink", "simulate"]
