"""Resets and alarms have rows of their own: what was decided from the event log is decided from them (SPEC X6)."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """New tables and columns; budgets, tokens and the start of a stop are carried over from the event log."""
    op.create_table(
        "reset",
        sa.Column("region", TEXT, nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("cause", TEXT, nullable=False),
        sa.Column("text", TEXT, nullable=False),
        sa.Column("member", TEXT, nullable=False),
        sa.Column("by", TEXT, nullable=False),
        sa.Column("token", TEXT, nullable=False),
        sa.Column("target", sa.BigInteger(), nullable=False),
        sa.Column("aborted", sa.BigInteger(), nullable=False),
        sa.Column("ran", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("region", "epoch", name=op.f("pk_reset")),
    )
    with op.batch_alter_table("reset") as batch_op:
        batch_op.create_index(batch_op.f("ix_reset_region_member_epoch"), ["region", "member", "epoch"], unique=False)
        batch_op.create_index(batch_op.f("ix_reset_region_token_epoch"), ["region", "token", "epoch"], unique=False)
    op.create_table(
        "alarm",
        sa.Column("region", TEXT, nullable=False),
        sa.Column("kind", TEXT, nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("text", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("region", "kind", name=op.f("pk_alarm")),
    )
    with op.batch_alter_table("region") as region:
        for name in ("proven_epoch", "started_epoch"):
            region.add_column(sa.Column(name, sa.BigInteger(), nullable=False, server_default="0"))
        for name in ("period", "stopping_since"):
            region.add_column(sa.Column(name, sa.Double(), nullable=False, server_default="0"))
        region.add_column(sa.Column("subscription_json", TEXT, nullable=False, server_default="{}"))
        region.add_column(sa.Column("dropped_json", TEXT, nullable=False, server_default="[]"))
    with op.batch_alter_table("member") as member:
        member.add_column(sa.Column("moved_epoch", sa.BigInteger(), nullable=False, server_default="0"))
        member.add_column(sa.Column("subscription_json", TEXT, nullable=False, server_default="{}"))
    with op.batch_alter_table("lease") as lease:
        lease.add_column(sa.Column("length", sa.Double(), nullable=False, server_default="0"))
    _carry_over(op.get_bind())


def _carry_over(connection: sa.Connection) -> None:
    events = connection.exec_driver_sql(
        'SELECT region, epoch, "at", checkpoint, member, "by", text, data_json FROM event '
        "WHERE kind = 'reset' ORDER BY region, seq"
    ).fetchall()
    resets = {(row[0], row[1]): _reset(*row) for row in events}
    if resets:
        columns: list[sa.ColumnClause[Any]] = [sa.column(name) for name in next(iter(resets.values()))]
        connection.execute(sa.insert(sa.table("reset", *columns)), list(resets.values()))
    regions = connection.exec_driver_sql("SELECT name, config_json, stopping FROM region").fetchall()
    for name, config, stopping in regions:
        _set(connection, name, "proven_epoch", _latest(connection, name, "epoch", ("merged", "start")))
        _set(connection, name, "started_epoch", _latest(connection, name, "epoch", ("start",)))
        _set(connection, name, "period", float((json.loads(config or "{}").get("trigger") or {}).get("period") or 0.0))
        if stopping:
            _set(connection, name, "stopping_since", _latest(connection, name, '"at"', ("stop",)))


def _reset(region: str, epoch: int, at: float, head: int, member: str, by: str, text: str, data: str) -> dict[str, Any]:
    """The row of an event: a budget says what it was, else whether a member or a person asked for it."""
    said = json.loads(data or "{}")
    budget, token = said.get("budget", ""), said.get("token", "")
    cause = {"forced": "rebalance", "loss": "lost"}.get(budget) or ("failure" if member else "person")
    return {
        "region": region,
        "epoch": epoch,
        "at": at,
        "cause": cause,
        "text": text,
        "member": member,
        "by": by,
        "token": token,
        "target": head,
        "aborted": 0,
        "ran": 0.0,
    }


def _latest(connection: sa.Connection, region: str, what: str, kinds: tuple[str, ...]) -> Any:
    """Of the last event of these kinds; 0 when there was none."""
    found = connection.execute(
        sa.text(
            f"SELECT {what} FROM event WHERE region = :region AND kind IN :kinds ORDER BY seq DESC LIMIT 1"
        ).bindparams(sa.bindparam("kinds", expanding=True)),
        {"region": region, "kinds": list(kinds)},
    ).fetchall()
    return found[0][0] if found else 0


def _set(connection: sa.Connection, region: str, column: str, value: Any) -> None:
    connection.execute(
        sa.text(f"UPDATE region SET {column} = :value WHERE name = :region"), {"value": value, "region": region}
    )
