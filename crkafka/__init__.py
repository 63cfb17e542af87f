"""The front door: all names that a program over a region needs.

    from crkafka import Region, consume

Names are looked up when they are first used, so that `import crkafka` brings neither Kafka's client nor Spark nor Dagster.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crkafka_core.config import BadConfiguration as BadConfiguration
    from crkafka_core.config import RegionConfig as RegionConfig
    from crkafka_core.decode.decoders import Avro as Avro
    from crkafka_core.decode.decoders import Decoder as Decoder
    from crkafka_core.decode.decoders import Json as Json
    from crkafka_core.decode.decoders import Protobuf as Protobuf
    from crkafka_core.model import errors as errors
    from crkafka_core.model.errors import ConfigError as ConfigError
    from crkafka_core.model.errors import CrkafkaError as CrkafkaError
    from crkafka_core.model.errors import DataLoss as DataLoss
    from crkafka_core.model.errors import NoSuchCheckpoint as NoSuchCheckpoint
    from crkafka_core.model.errors import NoSuchRegion as NoSuchRegion
    from crkafka_core.model.errors import Refused as Refused
    from crkafka_core.model.errors import RegionStopped as RegionStopped
    from crkafka_core.model.errors import ServiceUnavailable as ServiceUnavailable
    from crkafka_core.plane.transact import initialise as initialise
    from crkafka_core.region import Region as Region
    from crkafka_core.region.caught_up import consume as consume
    from crkafka_core.region.metrics import prometheus as prometheus
    from crkafka_core.spark import source as source
    from crkafka_core.spark import tables as tables
    from crkafka_core.spark.decode import decode as decode
    from crkafka_core.spark.decode import original_records as original_records
    from crkafka_core.spark.frames import checkpoints as checkpoints
    from crkafka_core.spark.frames import held as held
    from crkafka_core.spark.host import hosted as hosted
    from crkafka_core.spark.session import open_session as open_session
    from crkafka_core.verify.verify import verify as verify

_NAMES = {
    "crkafka_core.config": "BadConfiguration RegionConfig",
    "crkafka_core.decode.decoders": "Avro Decoder Json Protobuf",
    "crkafka_core.model": "errors",
    "crkafka_core.model.errors": "ConfigError CrkafkaError DataLoss NoSuchCheckpoint NoSuchRegion Refused RegionStopped ServiceUnavailable",
    "crkafka_core.plane.transact": "initialise",
    "crkafka_core.region": "Region",
    "crkafka_core.region.caught_up": "consume",
    "crkafka_core.region.metrics": "prometheus",
    "crkafka_core.spark": "source tables",
    "crkafka_core.spark.decode": "decode original_records",
    "crkafka_core.spark.frames": "checkpoints held",
    "crkafka_core.spark.host": "hosted",
    "crkafka_core.spark.session": "open_session",
    "crkafka_core.verify.verify": "verify",
}
"""Module that has the names, or the package whose modules they are."""
_HOME = {name: home for home, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'crkafka' has no {name!r}; it has {', '.join(sorted(_HOME))}")
    home = import_module(_HOME[name])
    value = getattr(home, name) if hasattr(home, name) else import_module(f"{_HOME[name]}.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(_HOME)
