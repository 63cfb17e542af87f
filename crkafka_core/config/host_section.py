"""The section `host` of a region's configuration: who runs the members."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, StrictBool, StrictStr, model_validator

from crkafka_core.config import location, reference, secret
from crkafka_core.config.problem import nearest
from crkafka_core.config.typed import STRICT
from crkafka_core.model.errors import ConfigError
from crkafka_core.model.plural import plural

_MASTER = re.compile(
    r"local(\[([1-9]\d*|\*)(\s*,\s*\d+)?\])?$|local-cluster\[[^\]]*\]$|spark://.+|sc://.+|k8s://.+|yarn$"
)


class HostConfig(BaseModel):
    """Who runs the members: Spark, as tasks, or this machine, as processes."""

    model_config = STRICT

    spark: StrictStr | None = None
    """Master or Connect URL: `local[4]`, `spark://…`, `yarn`, `k8s://…`, `sc://…`."""
    processes: StrictBool = False
    """Local processes, without Spark."""
    conf: dict[str, StrictStr] = Field(default_factory=dict)
    """Spark properties; beside `processes` only those of catalogs, `spark.sql.catalog.…`."""
    shared_disk: StrictBool = False
    """Whether local paths of storage and tables are on a disk that all machines of the cluster mount at the same place."""

    @model_validator(mode="before")
    @classmethod
    def _shape(cls, value: Any) -> Any:
        if value == "processes":
            return {"processes": True}
        if not isinstance(value, str):
            return value
        what = "sc://…" if any(secret.secrets_in(value)) else value
        if reference.has_reference(value) or _MASTER.match(value):
            raise ValueError(f'write {{spark: "{what}"}}, or processes')
        near = nearest(value, ["processes"])
        raise ValueError(f'must be processes, or {{spark: "local[4]"}} (or spark://…, sc://…), not {what!r}.{near}')

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.processes == (self.spark is not None):
            raise ValueError('must be either {spark: "local[4]"} (or spark://…, sc://…) or processes')
        if self.spark is not None and not reference.has_reference(self.spark) and not _MASTER.match(self.spark):
            what = "" if any(secret.secrets_in(self.spark)) else f": {self.spark!r}"
            masters = "local[4], spark://host:7077, yarn, k8s://… or sc://host:15002"
            raise ValueError(f"no Spark master{what}; write {masters}")
        if self.processes and any(not key.startswith("spark.sql.catalog.") for key in self.conf):
            raise ValueError("conf has Spark properties and goes with spark; beside processes only spark.sql.catalog.…")
        return self

    @property
    def remote(self) -> bool:
        """Whether members may run on another machine. A master on the loopback address has workers here only."""
        if self.spark is None or self.spark.startswith("local"):
            return False
        if self.spark.startswith(("spark://", "sc://")):
            host = urlsplit(self.spark.split(",")[0]).hostname or ""
            return not (host == "localhost" or host == "::1" or host.startswith("127."))
        return True

    def check_reach(self, control_plane: str, places: Iterable[tuple[str, str]]) -> None:
        """ValueError for a control plane, or a place with its name, that members on other machines do not see."""
        if not self.remote:
            return
        apart = f"members on {self.spark} run on other machines, which"
        if control_plane.startswith("sqlite"):
            raise ValueError(f"{apart} cannot share a SQLite file; use control_plane: postgresql+psycopg://…")
        for what, path in places:
            if location.is_local(path) and not self.shared_disk:
                places_for_all = "use s3://…, abfss://…, gs://… or hdfs://…, or host.shared_disk: true"
                raise ValueError(
                    f"{apart} do not see the folder of {what} ({path}); {places_for_all} if each machine mounts it there"
                )

    @property
    def local_slots(self) -> int | None:
        """Task slots of a Spark on this machine; None for another master."""
        match = re.fullmatch(r"local(?:\[(\d+)[^\]]*\])?", self.spark or "")
        return int(match[1] or 1) if match else None

    def check_slots(self, members: int) -> None:
        """Refuse more members than a local Spark has task slots: each takes one for as long as it runs (SPEC K1)."""
        slots = self.local_slots
        if slots is not None and slots < members:
            raise ConfigError(
                f"{plural(members, 'member needs', 'members need')} {plural(members, 'task slot')}, and {self.spark} has {slots}.",
                hint=f"Write local[{members + 1}]: one more, for tables. A host that runs has to be started again for it.",
            )

    @property
    def connect(self) -> bool:
        """Whether Spark is reached by Spark Connect."""
        return self.spark is not None and self.spark.startswith("sc://")
