"""Configuration of a region: one typed model, from YAML, a mapping or keywords, with references for secrets. Names are looked up when they
are first used: pydantic costs as much processor as all of `crkafka show`, which needs none of its models."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crkafka_core.config.host_section import HostConfig as HostConfig
    from crkafka_core.config.problem import BadConfiguration as BadConfiguration
    from crkafka_core.config.problem import Problem as Problem
    from crkafka_core.config.region_config import RegionConfig as RegionConfig
    from crkafka_core.config.resolving import Resolved as Resolved
    from crkafka_core.config.sections import StartConfig as StartConfig
    from crkafka_core.config.sections import TableConfig as TableConfig
    from crkafka_core.config.sections import TriggerConfig as TriggerConfig
    from crkafka_core.model.redaction import redact as redact

_HOME = {
    **dict.fromkeys(("BadConfiguration", "Problem"), "config.problem"),
    **dict.fromkeys(("StartConfig", "TableConfig", "TriggerConfig"), "config.sections"),
    "HostConfig": "config.host_section",
    "RegionConfig": "config.region_config",
    "Resolved": "config.resolving",
    "redact": "model.redaction",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"crkafka_core.{_HOME[name]}"), name)
    return value
