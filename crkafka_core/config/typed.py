"""Sections of the configuration for typed tables: the source of their columns, and the schema registry (SPEC K6)."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictInt, StrictStr, model_validator

from crkafka_core.config import reference, secret

STRICT = ConfigDict(frozen=True, extra="forbid", defer_build=True)
REGISTRY = "registry"

OnBadRecord = Literal["dead_letter", "stop", "skip"]


def _login(user: str) -> str:
    masked, references = reference.mask(reference.check(user))  # a colon in a reference is no separator
    password = reference.unmask(masked.partition(":")[2], references)
    if (password and not reference.is_whole(password)) or any(":" in d for d in reference.defaults(user)):
        raise ValueError("user holds a password; write ${env:REGISTRY_USER}:${env:REGISTRY_PASSWORD}")
    return user


def _headers(headers: dict[str, str]) -> dict[str, str]:
    return {name: secret.check(name, value) for name, value in headers.items()}


class RegistryConfig(BaseModel):
    """A Confluent-compatible schema registry."""

    model_config = STRICT

    url: Annotated[StrictStr, AfterValidator(partial(secret.check, "registry.url"))] = Field(min_length=1)
    """Such as https://registry.internal; may have references."""
    user: Annotated[StrictStr, AfterValidator(_login)] = ""
    """`name:password`, as references: `${env:REGISTRY_USER}:${env:REGISTRY_PASSWORD}`."""
    headers: Annotated[dict[str, StrictStr], AfterValidator(_headers)] = Field(default_factory=dict)
    """Sent with each request."""


class TypedConfig(BaseModel):
    """Source of the columns of a typed table: one of json, avro, protobuf."""

    model_config = STRICT

    json_file: StrictStr | None = Field(None, alias="json")
    """A file with a JSON Schema, read again for each write, so that columns may be added; or `registry`."""
    avro: Literal["registry"] | None = None
    """`registry`: Avro in the registry's wire format."""
    protobuf: Literal["registry"] | None = None
    """`registry`: Protobuf in the registry's wire format."""
    subject: StrictStr | None = None
    """Subject in the registry; by default `TOPIC-value`."""
    version: StrictInt | None = Field(None, ge=1)
    """Version of the subject; by default the latest."""

    @model_validator(mode="before")
    @classmethod
    def _shape(cls, value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError("write {json: schema.json}, {json: registry}, {avro: registry} or {protobuf: registry}")
        return value

    @model_validator(mode="after")
    def _agree(self) -> Self:
        given = [w for w in (self.json_file, self.avro, self.protobuf) if w is not None]
        if len(given) != 1:
            raise ValueError("names one of {json: schema.json}, {avro: registry} and {protobuf: registry}")
        if not self.registered and (self.subject is not None or self.version is not None):
            raise ValueError("subject and version are of a schema in a registry; json names a file")
        return self

    @property
    def registered(self) -> bool:
        """Whether the schema is in a registry."""
        return self.json_file in (None, REGISTRY)


class Typing(BaseModel):
    """Keys of a declared table for its types."""

    model_config = STRICT

    typed: TypedConfig | None = None
    """Makes the columns from a schema, without code: `{json: schema.json}`, `{avro: registry}` or `{protobuf: registry}`."""
    on_bad_record: OnBadRecord | None = None
    """For records of a typed table that cannot be decoded: `dead_letter` (default), `stop`, or `skip`."""
    dead_letters: StrictStr | None = Field(None, pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")
    """Name of the table with the dead letters of a typed one; by default its name and `_dead`."""
