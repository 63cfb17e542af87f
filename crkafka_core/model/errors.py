"""Errors, one class per reaction, with what happened, to which part, and what to do next."""

from __future__ import annotations

from typing import ClassVar

from crkafka_core.model.redaction import redact_values


class CrkafkaError(Exception):
    """Base of all errors for people. `hint` is what to do next; `exit_code` is the exit code of a command."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        message = redact_values(message)  # foreign error texts may quote our secrets (SPEC U2)
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


class ConfigError(CrkafkaError):
    """A configuration or a call that cannot work. Reaction: mend it; nothing was started."""

    exit_code = 2


class ServiceUnavailable(CrkafkaError):
    """Kafka, the database or the storage is unavailable. Reaction: wait and try again; never counted as a failure of the region."""

    exit_code = 3


class Refused(CrkafkaError):
    """The region refuses a call. Reaction: look at the region; this call changed nothing."""


class NoSuchRegion(Refused):
    """The control plane has no region of this name. Reaction: `crkafka init`."""


class WrongRegion(Refused):
    """The group belongs to another region (SPEC G1). Reaction: another group id, or the other region. Never retried."""


class OldConfiguration(Refused):
    """A member reads a topic that the region's configuration has dropped (SPEC S4), or has another protocol of the group than live members.
    Reaction: the same configuration for all. Never retried."""


class TooOld(Refused):
    """The region needs a protocol that this program does not know. Reaction: the newer program. Never retried."""


class ManualAssignment(ConfigError):
    """Assigning or unassigning by hand in a group (SPEC G2). Reaction: leave assignment to Kafka."""


class Superseded(Refused):
    """A newer incarnation of this operator is registered (SPEC G3). Reaction: exit for good, no restart."""


class Lost(Refused):
    """This incarnation was declared lost or removed (SPEC G3, G4). Reaction: fail, and be restarted by the host."""


class Stale(Refused):
    """The caller saw an older state than the stored one: epoch, head, counter. Reaction: read again and decide again."""


class NotRunning(Refused):
    """The region is in a phase in which this cannot be done. Reaction: wait for the phase, or start the region."""


class NotSettled(Refused):
    """The group is not settled (SPEC G8). Reaction: wait; the message names what is missing."""


class CutOpen(Refused):
    """Another cut is open. Reaction: wait for it; it has a deadline."""


class NotOpen(Refused):
    """The checkpoint is not the open one: retired, aborted, merged or unknown (SPEC C2). Reaction: drop the contribution."""


class Mismatch(Refused):
    """A contribution does not match what the cut fixed (SPEC C2, C3). Reaction: the cut is aborted, the evidence is kept."""


class Conflict(Mismatch):
    """The same incarnation has made a different contribution (SPEC C2). Reaction: the cut is aborted."""


class LeaseHeld(Refused):
    """Another process holds the lease (SPEC A6, K6). Reaction: wait for the named holder, or try again later."""


class LeaseLost(Refused):
    """The lease ended or was taken over (SPEC A6, K6). Reaction: stop; nothing more may be written with it."""


class NoSuchCheckpoint(Refused):
    """The checkpoint is unknown, superseded, aborted or retired, and a live one is needed. Reaction: choose a listed one."""


class DataLoss(Refused):
    """Kafka no longer has needed records, or a topic was deleted and made again (SPEC S4). Reaction: a person decides."""


class RegionStopped(Refused):
    """The region is STOPPED. Reaction: read the reason, mend it, `crkafka start`."""


class WentBack(Refused):
    """The control plane is older than numbers seen elsewhere (SPEC G10). Reaction: a newer backup, or a person rewinds."""


class NotOwner(Refused):
    """The storage belongs to another control plane, of which this one is a copy (SPEC T3). Reaction: another storage, or claim it."""


class SchemaError(CrkafkaError):
    """The database has another schema version than this program. Reaction: the named command."""

    exit_code = 2


class NoControlPlane(SchemaError):
    """The database has no tables of a control plane. Reaction: `crkafka init`, or Dagster's job that starts the region."""
