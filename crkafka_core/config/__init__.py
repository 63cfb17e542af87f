"""Configuration of a region: one typed model, from YAML, a mapping or keywords, with references for secrets."""

from crkafka_core.config.host_section import HostConfig
from crkafka_core.config.problem import BadConfiguration, Problem
from crkafka_core.config.region_config import RegionConfig
from crkafka_core.config.resolving import Resolved
from crkafka_core.config.sections import StartConfig, TableConfig, TriggerConfig
from crkafka_core.model.redaction import redact

__all__ = [
    "BadConfiguration",
    "HostConfig",
    "Problem",
    "RegionConfig",
    "Resolved",
    "StartConfig",
    "TableConfig",
    "TriggerConfig",
    "redact",
]
