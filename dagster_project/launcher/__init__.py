"""Warm runs: a run launcher that hands runs to a process with everything imported, which forks (docs/clients.md C-D2).

An opt-in of the instance.
"""

from dagster_project.launcher.warm import WarmRunLauncher

__all__ = ["WarmRunLauncher"]
