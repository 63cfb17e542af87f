"""What a region's component may say about Dagster alone, beside the region's own configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from crkafka_core.model.errors import ConfigError


class Options(BaseModel):
    """The key `dagster` of a component's attributes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sensors: Literal["running", "stopped"] = "running"
    """Whether sensors are on in a fresh instance."""
    linger: float = Field(4.5, ge=0, le=30)
    """Seconds for which a tick of the trigger's sensor waits for a cut to fall due; the daemon's loop is 5 s."""
    host: bool = True
    """Whether Dagster starts the members when the region is wanted and nobody hosts them."""
    keep_up: int = Field(200, ge=1, le=5_000)
    """Checkpoints that one run of a table takes at most."""
    consume: str = "0 * * * *"
    """When the bounded run is scheduled; the schedule is off until somebody turns it on."""
    retire: str = "17 3 * * *"
    """When old checkpoints are retired."""
    fresh: float = Field(3_600, gt=0)
    """Seconds after which a table without new checkpoints is stale."""
    owners: tuple[str, ...] = ()
    """Owners of the assets: e-mail addresses or team:name."""

    @classmethod
    def parse(cls, value: Mapping[str, Any] | None, source: str) -> Options:
        """The options, or a ConfigError of one sentence."""
        try:
            return cls.model_validate(dict(value or {}))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(["dagster", *map(str, first["loc"])])
            known = ", ".join(cls.model_fields)
            raise ConfigError(f"{source}: {where}: {first['msg']}.", hint=f"Known keys of dagster: {known}.") from None
