"""The first version: all tables of the control plane, as they were made then. Later versions change them, each in a file of its own."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
TYPES: dict[str, Any] = {"text": TEXT, "int": sa.BigInteger(), "float": sa.Double(), "bool": sa.Boolean()}


def _create(name: str, columns: str, *, key: str, indexes: tuple[str, ...] = (), by_key: bool = False) -> None:
    """A table with its columns and their types, its primary key, and its indexes; none of the columns may be null."""
    typed = [column.split(" ") for column in columns.split(", ")]
    op.create_table(
        name,
        *(sa.Column(column, TYPES[kind], nullable=False) for column, kind in typed),
        sa.PrimaryKeyConstraint(*key.split(", "), name=op.f(f"pk_{name}")),
        sqlite_with_rowid=not by_key,
    )
    for index in indexes:
        of = index.split(", ")
        op.create_index(op.f(f"ix_{name}_{'_'.join(of)}"), name, of)


def upgrade() -> None:
    _create("alarm", "region text, kind text, epoch int, at float, text text", key="region, kind")
    _create(
        "checkpoint",
        "region text, id int, parent int, epoch int, status text, cause text, token text, generation int, "
        "opened_at float, deadline float, merged_at float, rows int, bytes int, segments int, members int, "
        "drain_ms int, hash text, note text, archive_json text, cluster_id text, archive_topics_json text, "
        "if_new bool, without_json text, erased_json text",
        key="region, id",
        indexes=("region, id, status, rows", "region, merged_at", "region, status, id", "region, token, id"),
    )
    _create(
        "consumer_group",
        "cluster_id text, group_id text, region text, region_index int",
        key="cluster_id, group_id",
        indexes=("region",),
        by_key=True,
    )
    _create(
        "contributed_offset",
        "region text, checkpoint int, member text, topic text, partition int, from_offset int, "
        "to_offset int, rows int, leader_epoch int",
        key="region, checkpoint, member, topic, partition",
        by_key=True,
    )
    _create(
        "contribution",
        "region text, checkpoint int, member text, incarnation text, epoch int, base int, generation int, "
        "members_json text, topic_ids_json text, rows int, bytes int, drain_ms int, hash text, at float",
        key="region, checkpoint, member",
    )
    _create("dead_numbers", "region text, upto int, after int", key="region, upto", by_key=True)
    _create(
        "declared_table",
        "region text, name text, format text, path text, acknowledged int, fenced_epoch int, "
        "rewind_epoch int, commits int, version text, layout text, shape text, output text",
        key="region, name",
    )
    _create(
        "erased_records",
        "region text, topic_id text, partition int, first int, next int, topic text, checkpoint int",
        key="region, topic_id, partition, first",
        by_key=True,
    )
    _create(
        "event",
        "region text, seq int, at float, kind text, epoch int, checkpoint int, member text, by text, "
        "text text, data_json text",
        key="region, seq",
        indexes=("region, at", "region, kind, seq"),
    )
    _create(
        "filler",
        "region text, checkpoint int, member text, incarnation text, offsets_json text, topic_ids_json text",
        key="region, checkpoint, member",
        by_key=True,
    )
    _create("goal", "region text, token text, ends_json text, reached_json text, at float", key="region, token")
    _create(
        "initial_offset",
        "region text, topic_id text, partition int, topic text, offset int, position text, at float, forgotten bool",
        key="region, topic_id, partition",
        indexes=("region, topic, partition",),
        by_key=True,
    )
    _create("launch", "region text, name text, number int", key="region, name", by_key=True)
    _create(
        "lease",
        "region text, kind text, slot text, holder text, token text, number int, until float, length float, "
        "data_json text",
        key="region, kind, slot",
        by_key=True,
    )
    _create(
        "member",
        "region text, name text, incarnation text, launch int, status text, host text, instance_id text, "
        "first_registered_at float, registered_at float, renewals int, epoch int, base int, generation int, "
        "member_epochs bool, assignment_json text, stale_since float, rebalances int, moved_epoch int, "
        "subscription_json text, metrics_json text",
        key="region, name",
    )
    _create(
        "merged_offset",
        "region text, checkpoint int, topic text, partition int, topic_id text, from_offset int, "
        "to_offset int, rows int, member text, leader_epoch int",
        key="region, checkpoint, topic, partition",
        by_key=True,
    )
    _create(
        "partition_start",
        "region text, epoch int, base int, topic text, partition int, topic_id text, offset int, "
        "reason text, by text, note text",
        key="region, epoch, base, topic, partition",
        by_key=True,
    )
    _create(
        "pause_mark",
        "region text, kind text, what text, member text, by text, at float",
        key="region, kind, what, member",
        by_key=True,
    )
    _create(
        "region",
        "name text, uid text, region_index int, version int, epoch int, phase text, phase_since float, "
        "wanted text, members_wanted int, wait_for_wanted bool, head int, open_cut int, filling int, "
        "opened int, handover_json text, next_event int, born bool, cluster_id text, group_id text, "
        "reset_cause text, reset_at float, not_before float, settled_at float, consecutive int, "
        "failing int, proven_epoch int, started_epoch int, last_cut_at float, period float, "
        "resumed_at float, asked_epoch int, asked_head int, asked_by text, stop_reason text, "
        "stop_member text, stopping bool, stopping_since float, limits_json text, config_json text, "
        "subscription_json text, dropped_json text, created_at float, went_back bool, protocol int",
        key="name",
    )
    _create(
        "reset",
        "region text, epoch int, at float, cause text, text text, member text, by text, token text, "
        "target int, aborted int, lacking int, filling int, opened int, ran float",
        key="region, epoch",
        indexes=("region, member, epoch", "region, token, epoch"),
    )
    _create(
        "segment",
        "region text, path text, checkpoint int, member text, incarnation text, epoch int, rows int, "
        "bytes int, hash text, spans_json text",
        key="region, path",
        indexes=("region, checkpoint, path",),
    )
    _create(
        "table_commit",
        "region text, table text, number int, kind text, after int, upto int, checkpoints_json text, "
        "token text, status text, version text, rows int, at float, counts_json text",
        key="region, table, number",
        indexes=("region, table, status, number",),
    )
