"""Whole regions on simulated time, from a seed: real members, host, drivers and rules over edges that misbehave."""

from tests.rigs.simulation.history import History, Violation
from tests.rigs.simulation.plan import Fault, Plan, plan
from tests.rigs.simulation.run import shrink, simulate

__all__ = ["Fault", "History", "Plan", "Violation", "plan", "shrink", "simulate"]
