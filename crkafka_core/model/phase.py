"""Phases of a region and of a member's client, each with its transition table as data (SPEC G9, M6)."""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """Phases of a region (SPEC G9)."""

    IDLE = "IDLE"
    BIRTH = "BIRTH"
    RUNNING = "RUNNING"
    CUTTING = "CUTTING"
    RESETTING = "RESETTING"
    REWINDING = "REWINDING"
    STOPPED = "STOPPED"


class Wanted(StrEnum):
    """State that a person wants for a region."""

    RUN = "run"
    STOP = "stop"


TRANSITIONS: dict[Phase, frozenset[Phase]] = {
    Phase.IDLE: frozenset({Phase.BIRTH, Phase.RESETTING, Phase.REWINDING, Phase.STOPPED}),
    Phase.BIRTH: frozenset({Phase.RUNNING, Phase.BIRTH, Phase.REWINDING, Phase.STOPPED, Phase.IDLE}),
    Phase.RUNNING: frozenset({Phase.CUTTING, Phase.RESETTING, Phase.REWINDING, Phase.STOPPED, Phase.IDLE}),
    Phase.CUTTING: frozenset({Phase.RUNNING, Phase.RESETTING, Phase.REWINDING, Phase.STOPPED, Phase.IDLE}),
    Phase.RESETTING: frozenset({Phase.RUNNING, Phase.RESETTING, Phase.REWINDING, Phase.STOPPED, Phase.IDLE}),
    Phase.REWINDING: frozenset({Phase.BIRTH, Phase.RESETTING, Phase.REWINDING, Phase.STOPPED, Phase.IDLE}),
    Phase.STOPPED: frozenset({Phase.BIRTH, Phase.RESETTING, Phase.REWINDING, Phase.IDLE}),
}
"""RUNNING is entered only by merge (from CUTTING) and by resume (from BIRTH, RESETTING)."""

UNSETTLED = frozenset({Phase.BIRTH, Phase.RESETTING, Phase.REWINDING})
"""Phases without a flow of records, in which members wait at their starts."""


FLOWING = frozenset({Phase.RUNNING, Phase.CUTTING})
"""Phases in which records flow."""


class ClientState(StrEnum):
    """States of a member's client (SPEC M6)."""

    INITIALIZED = "INITIALIZED"
    SUBSCRIBED = "SUBSCRIBED"
    RECORDS_FETCHED = "RECORDS_FETCHED"
    CR_RESET_PENDING = "CR_RESET_PENDING"
    RESET_COMPLETE = "RESET_COMPLETE"


class ClientEvent(StrEnum):
    """Events that change a client's state."""

    SUBSCRIBE = "subscribe"
    FETCH = "fetch"
    REVOKE = "revoke"
    RESET = "reset"


CLIENT: dict[tuple[ClientState, ClientEvent], ClientState] = {
    (ClientState.INITIALIZED, ClientEvent.SUBSCRIBE): ClientState.SUBSCRIBED,
    (ClientState.SUBSCRIBED, ClientEvent.FETCH): ClientState.RECORDS_FETCHED,
    (ClientState.SUBSCRIBED, ClientEvent.REVOKE): ClientState.SUBSCRIBED,
    (ClientState.SUBSCRIBED, ClientEvent.RESET): ClientState.RESET_COMPLETE,
    (ClientState.RECORDS_FETCHED, ClientEvent.FETCH): ClientState.RECORDS_FETCHED,
    (ClientState.RECORDS_FETCHED, ClientEvent.REVOKE): ClientState.CR_RESET_PENDING,
    (ClientState.RECORDS_FETCHED, ClientEvent.RESET): ClientState.RESET_COMPLETE,
    (ClientState.CR_RESET_PENDING, ClientEvent.REVOKE): ClientState.CR_RESET_PENDING,
    (ClientState.CR_RESET_PENDING, ClientEvent.RESET): ClientState.RESET_COMPLETE,
    (ClientState.RESET_COMPLETE, ClientEvent.FETCH): ClientState.RECORDS_FETCHED,
    (ClientState.RESET_COMPLETE, ClientEvent.REVOKE): ClientState.RESET_COMPLETE,
    (ClientState.RESET_COMPLETE, ClientEvent.RESET): ClientState.RESET_COMPLETE,
}
"""A revocation is ignored (the state stays) when nothing was fetched since subscribing or the last reset (SPEC R2).
Other pairs cannot happen, and raise KeyError."""
