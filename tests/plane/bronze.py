"""What the tests of commits do with table bronze of a landed region: permit, finish, fence, look."""

from __future__ import annotations

from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import Table
from crkafka_core.plane import contents, permits, tables
from crkafka_core.plane.permits import Permit
from tests.rigs.landing import Landing


def permit(landing: Landing, token: str = "a", **what: object) -> Permit | None:
    return landing.do(lambda tx: permits.permit_commit(tx, "bronze", holder=token, token=token, **what))  # type: ignore[arg-type]


def allowed(landing: Landing, token: str = "a", **what: object) -> Permit:
    made = permit(landing, token, **what)
    assert made is not None
    return made


def finish(landing: Landing, made: Permit) -> Table:
    return landing.do(lambda tx: permits.finish_commit(tx, made, version="v", rows=made.plan.rows))


def fence(landing: Landing, token: str = "f") -> Table:
    made = landing.do(lambda tx: permits.permit_fence(tx, "bronze", holder=token, token=token))
    assert made is not None
    return landing.do(lambda tx: permits.finish_fence(tx, made, version="w"))


def table(landing: Landing) -> Table:
    return landing.read(lambda reader, region: tables.of(reader, "bronze"))


def landed(landing: Landing) -> dict[TP, int]:
    """Up to which offset of each partition every table has all rows."""
    return landing.read(lambda reader, row: contents.landed(reader, row, set(landing.tps)))
