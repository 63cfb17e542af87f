"""Views for people: times as timestamps, one question each; docs/format.md shows how to query them. `crkafka init` makes them again after
the migrations: they have no data to migrate."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, inspect
from sqlalchemy.exc import DBAPIError

from checkpoints_db.migrations import VERSION_TABLE
from checkpoints_db.retry import sqlstate
from crkafka_core.model.errors import SchemaError
from crkafka_core.plane import lateness
from crkafka_core.plane.alarms import AT_LEAST, PERIODS

_VIEWS: dict[str, str] = {
    "v_regions": """
SELECT r.name AS region, r.uid, r.phase, {time:r.phase_since} AS since, r.wanted, r.epoch, r.head AS last_checkpoint,
       nullif(r.open_cut, 0) AS open_checkpoint, r.members_wanted,
       (SELECT count(*) FROM member m WHERE m.region = r.name AND m.status = 'LIVE') AS members_live,
       r.consecutive AS resets_in_a_row, {time:r.last_cut_at} AS last_cut, nullif(r.reset_cause, '') AS reset_cause,
       nullif(r.stop_reason, '') AS stop_reason,
       r.period > 0 AND r.wanted = 'run' AND r.phase NOT IN ('IDLE', 'STOPPED')
         AND {now} - r.last_cut_at > {allowed}
         AND {now} - coalesce(b."at", 0) > {allowed}
         AND (l.cause IS NULL OR r.phase <> 'REWINDING' AND {now} - r.reset_at > {allowed}) AS no_merge,
       r.cluster_id, r.group_id
FROM region r LEFT JOIN reset b ON b.region = r.name AND b.epoch = r.started_epoch
LEFT JOIN reset l ON l.region = r.name AND l.epoch = r.epoch AND l.cause = 'person'""",
    "v_checkpoints": """
SELECT c.region, c.id AS checkpoint, c.parent, c.status, c.cause, c.epoch, {time:c.opened_at} AS opened,
       {time:c.merged_at} AS merged,
       CASE WHEN c.merged_at > 0 THEN round({decimal:(c.merged_at - c.opened_at) * 1000}) END AS took_ms,
       c.drain_ms, c.rows AS tuples, c.bytes, c.segments, c.members, c.id = r.head AS is_head,
       nullif(c.note, '') AS note
FROM checkpoint c JOIN region r ON r.name = c.region""",
    "v_offsets": """
SELECT o.region, o.checkpoint, c.parent, c.status, o.topic, o.partition, o.from_offset, o.to_offset, o.rows AS tuples,
       nullif(o.member, '') AS member, o.topic_id, o.checkpoint = r.head AS is_head
FROM merged_offset o
JOIN checkpoint c ON c.region = o.region AND c.id = o.checkpoint
JOIN region r ON r.name = o.region""",
    "v_members": """
SELECT m.region, m.name AS member, m.status, m.incarnation, m.launch, m.host, {time:m.registered_at} AS registered,
       m.epoch = r.epoch AS has_reset, m.epoch, m.base AS starts_from, m.generation,
       nullif(m.assignment_json, '') AS assignment, m.renewals, m.rebalances, m.metrics_json AS metrics
FROM member m JOIN region r ON r.name = m.region""",
    "v_contributions": """
SELECT e.region, e.checkpoint, c.status, e.member, k.member IS NOT NULL AS contributed, {time:k.at} AS at,
       k.rows AS tuples, k.bytes, k.drain_ms, e.incarnation, k.hash
FROM filler e
JOIN checkpoint c ON c.region = e.region AND c.id = e.checkpoint
LEFT JOIN contribution k ON k.region = e.region AND k.checkpoint = e.checkpoint AND k.member = e.member""",
    "v_lag": """
SELECT i.region, i.topic, i.partition, i."offset" AS first_offset, coalesce(o.to_offset, i."offset") AS merged_offset,
       e.position, e.end_offset,
       CASE WHEN e.end_offset > coalesce(o.to_offset, i."offset") THEN e.end_offset - coalesce(o.to_offset, i."offset")
            WHEN e.end_offset IS NOT NULL THEN 0 END AS lag,
       e.member
FROM initial_offset i
JOIN region r ON r.name = i.region
LEFT JOIN merged_offset o
  ON o.region = i.region AND o.checkpoint = r.head AND o.topic = i.topic AND o.partition = i.partition
LEFT JOIN ({ends}) e ON e.region = i.region AND e.topic = i.topic AND e.partition = i.partition
WHERE NOT i.forgotten""",
    "v_tables": """
SELECT t.region, t.name AS table_name, t.format, t.path, t.acknowledged AS acknowledged_checkpoint, t.behind,
       {time:t.first_merged} AS waiting_since, t.owes_fence, t.layout = 'files' AND t.shape = '' AS adopts_segments, t.commits, t.version,
       r.phase <> 'IDLE' AND coalesce(
         t.owes_fence AND r.phase = 'REWINDING' AND {now} - r.phase_since > {late}
         OR {now} - t.first_merged > {late} AND NOT {left}, FALSE) AS late
FROM (
  SELECT d.*, d.rewind_epoch > d.fenced_epoch AS owes_fence,
         (SELECT count(*) FROM checkpoint c WHERE {waits}) AS behind,
         (SELECT c.merged_at FROM checkpoint c WHERE {waits} ORDER BY c.id LIMIT 1) AS first_merged
  FROM declared_table d
) t JOIN region r ON r.name = t.region""",
    "v_resets": """
SELECT s.region, s.epoch, {time:s.at} AS at, s.cause, nullif(s.member, '') AS member, nullif(s.by, '') AS asked_by,
       nullif(s.aborted, 0) AS aborted_checkpoint, s.target AS goes_back_to, s.ran AS ran_s, s.text
FROM reset s""",
    "v_timeline": """
SELECT e.region, e.seq, {time:e.at} AS at, e.kind, e.epoch, nullif(e.checkpoint, 0) AS checkpoint,
       nullif(e.member, '') AS member, nullif(e.by, '') AS asked_by, e.text, e.data_json AS data
FROM event e""",
}

_SHARED = {
    "allowed": f"CASE WHEN {PERIODS} * r.period > {AT_LEAST} THEN {PERIODS} * r.period ELSE {AT_LEAST} END",
    "late": str(lateness.LATE),
    "waits": "c.region = d.region AND c.status IN ('MERGED', 'RETIRED') AND c.id > d.acknowledged AND c.rows > 0",
}
"""Conditions of `crkafka_core.plane`, of alarms and of late tables; `waits`: a checkpoint that a table does not have yet."""

_SQLITE = {
    "now": "((julianday('now') - 2440587.5) * 86400.0)",
    "ends": """
SELECT m.region, m.name AS member, t.key AS topic, CAST(p.key AS INTEGER) AS partition,
       json_extract(p.value, '$[0]') AS position, json_extract(p.value, '$[1]') AS end_offset
FROM member m, json_each(m.metrics_json, '$.partitions') t, json_each(t.value) p WHERE m.status = 'LIVE'""",
    "left": """
EXISTS (SELECT 1 FROM json_each(nullif(r.config_json, ''), '$.tables') x
        WHERE json_extract(x.value, '$.name') = t.name AND json_extract(x.value, '$.kept_fresh') = 0)""",
}
"""What differs in SQLite. `ends`: the lag that members report; `left`: whether the configuration leaves a table to others."""

_POSTGRES = {
    "now": "extract(epoch FROM clock_timestamp())",
    "ends": """
SELECT m.region, m.name AS member, t.key AS topic, p.key::bigint AS partition,
       (p.value ->> 0)::bigint AS position, (p.value ->> 1)::bigint AS end_offset
FROM member m,
     jsonb_each(CASE WHEN jsonb_typeof(m.metrics_json::jsonb -> 'partitions') = 'object'
                THEN m.metrics_json::jsonb -> 'partitions' ELSE '{}'::jsonb END) t,
     jsonb_each(t.value) p
WHERE m.status = 'LIVE'""",
    "left": """
EXISTS (SELECT 1 FROM jsonb_path_query(nullif(r.config_json, '')::jsonb, '$.tables[*]') x
        WHERE x ->> 'name' = t.name AND x ->> 'kept_fresh' = 'false')""",
}

VIEWS = tuple(_VIEWS)
_DEPENDED_ON = "2BP01"
_OURS = f"c.relkind = 'v' AND c.relnamespace = current_schema()::regnamespace AND c.relname IN {VIEWS}"
_KEPT = f"""
SELECT c.relname, 'ALTER VIEW ' || quote_ident(c.relname) || ' OWNER TO ' || quote_ident(pg_get_userbyid(c.relowner))
FROM pg_class c WHERE {_OURS}
UNION ALL
SELECT c.relname, 'ALTER VIEW ' || quote_ident(c.relname) || ' SET (' || array_to_string(c.reloptions, ', ') || ')'
FROM pg_class c WHERE {_OURS} AND c.reloptions IS NOT NULL
UNION ALL
SELECT c.relname, 'GRANT ' || a.privilege_type || ' ON ' || quote_ident(c.relname) || ' TO '
       || CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END
       || CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END
FROM pg_class c, aclexplode(c.relacl) a WHERE {_OURS}"""
"""Query for the statements that restore the views' owner, options and rights."""


def create_views(connection: Connection) -> None:
    """Make all views, with `{time:…}`, `{decimal:…}` and the names above filled in. PostgreSQL replaces existing ones, so that views of
    users built on them stay."""
    postgres = connection.dialect.name == "postgresql"
    if not postgres:
        drop_views(connection)
    time = "to_timestamp(nullif({}, 0))" if postgres else "strftime('%Y-%m-%d %H:%M:%f', nullif({}, 0), 'unixepoch')"
    forms = {"time": time, "decimal": "({})::numeric" if postgres else "({})"}
    for name, select in _VIEWS.items():
        for word, filled in (_SHARED | (_POSTGRES if postgres else _SQLITE)).items():
            select = select.replace(f"{{{word}}}", filled)
        select = re.sub(r"\{(time|decimal):([^{}]+)\}", lambda m: forms[m[1]].format(m[2]), select)
        if not postgres:
            connection.exec_driver_sql(f"CREATE VIEW {name} AS {select}")
            continue
        try:
            with connection.begin_nested():
                connection.exec_driver_sql(f"CREATE OR REPLACE VIEW {name} AS {select}")
        except DBAPIError:  # its columns have changed
            _drop(connection, name)
            connection.exec_driver_sql(f"CREATE VIEW {name} AS {select}")


def drop_views(connection: Connection) -> None:
    """Drop the existing views, so that a migration may change their tables."""
    for name in inspect(connection).get_view_names():
        if name in _VIEWS:
            _drop(connection, name)


def _drop(connection: Connection, name: str) -> None:
    try:
        connection.exec_driver_sql(f"DROP VIEW {name}")
    except DBAPIError as error:
        if sqlstate(error) != _DEPENDED_ON:
            raise
        raise SchemaError(
            f"The view {name} changes with this version, and views or functions of yours are built on it.",
            hint="Drop those, run `crkafka init`, and make them again; `DROP VIEW` in psql names them.",
        ) from None


def may_alter(connection: Connection) -> bool:
    """Whether this user owns the tables, and so may change the views."""
    if connection.dialect.name != "postgresql":
        return True
    owns = f"SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = '{VERSION_TABLE}'::regclass"
    return bool(connection.exec_driver_sql(owns).scalar())


@contextmanager
def keeping_grants(connection: Connection) -> Iterator[None]:
    """Restore owner, options and rights of the views that the block replaces."""
    if connection.dialect.name != "postgresql":
        yield
        return
    kept = connection.exec_driver_sql(_KEPT).fetchall()
    yield
    existing = inspect(connection).get_view_names()
    for name, statement in kept:
        if name in existing:
            connection.exec_driver_sql(statement)
