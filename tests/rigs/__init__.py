"""Rigs of this project's own tests: scenarios on real processes, failpoints, proxies, and the simulation of whole regions."""
