"""The address of a region: its name, and its control plane. A verb that only reads rows needs no more of a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from crkafka_core.config import location, reference, secret
from crkafka_core.config.resolving import resolve

KEYS = ("region", "control_plane")


@dataclass(frozen=True)
class Address:
    """Where the rows of a region are; the keys beside these two are not checked."""

    region: str
    control_plane: str
    """With references for secrets, as in `RegionConfig`."""

    @classmethod
    def load(cls, path: Path | str, *, region: str | None = None) -> Self:
        """From a YAML file, as `RegionConfig.load` reads it; ValueError if one of the two keys is wrong, which that explains."""
        from crkafka_core.config import yaml_file

        file = Path(path)
        value = yaml_file.chosen(file, region).value
        if not isinstance(value, Mapping) or not all(isinstance(value.get(key), str) for key in KEYS):
            raise ValueError(f"{file} has no {' and '.join(KEYS)}")
        return cls(value["region"], control_plane(value["control_plane"], location.project_of(file)))

    def resolved_control_plane(self) -> str:
        """URL of the database, with its password."""
        return resolve(self.control_plane, "control_plane")


def control_plane(url: str, base: Path) -> str:
    """The URL with absolute paths; ValueError if it is none, or has a secret in clear."""
    secret.check("control_plane", url)
    return reference.anchor(location.absolute_url(url, base), base)
