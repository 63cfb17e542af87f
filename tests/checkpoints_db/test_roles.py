"""Roles on PostgreSQL: what each of them may, with row-level security for each region, tried as each of them."""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError

from checkpoints_db import SqlStore, initialise, open_store, roles
from checkpoints_db.address import parse
from checkpoints_db.engines import make_engine
from checkpoints_db.retry import Patience
from crkafka_core.dev.postgres import Postgres, _binary
from crkafka_core.model.errors import CrkafkaError, NoSuchRegion, ServiceUnavailable
from crkafka_core.model.phase import Phase
from crkafka_core.model.rows import Event, Group, Lease, MergedOffset, Region, ResetCause, Segment
from crkafka_core.plane import advance, cuts, events, leases, life, members, reading, resets, restored, starts
from crkafka_core.plane.transact import ControlPlane
from tests.checkpoints_db.mutation_cases import CASES, NAME, Stage
from tests.rigs.players import PARTITIONS, Player, new_region

pytestmark = pytest.mark.postgres
MINE, OTHER = "orders", "refunds"
LOGINS = {
    "t_owner": "crkafka_owner",
    "t_host": "crkafka_region",
    "t_other_host": "crkafka_region",
    "t_member": "crkafka_member",
    "t_reader": "crkafka_reader",
    "t_reader2": "crkafka_reader",
    "t_viewer": "crkafka_viewer",
}


@dataclass
class Plane:
    """A control plane with two regions, and a login of each role."""

    url: str
    socket: Path

    def run_roles(self) -> None:
        """As an administrator does, by psql."""
        told = ["-h", str(self.socket), "-U", "postgres", "-d", "roles", "-qv", "ON_ERROR_STOP=1"]
        psql = [str(_binary("psql")), *told]
        done = subprocess.run(psql, input=roles(), text=True, capture_output=True, check=False, timeout=60)
        assert (done.returncode, done.stderr) == (0, ""), "also no line of what it need not do"

    def address(self, login: str) -> str:
        return self.url.replace("postgres@", f"{login}@")

    def store(self, login: str) -> SqlStore:
        return open_store(self.address(login), patience=Patience(bound=0.2))

    def sql(self, login: str, statement: str) -> Any:
        engine = make_engine(parse(self.address(login)))
        try:
            with engine.begin() as connection:
                done = connection.exec_driver_sql(statement)
                return done.fetchall() if done.returns_rows else done.rowcount
        finally:
            engine.dispose()


@pytest.fixture(scope="module")
def plane(postgres: Postgres) -> Iterator[Plane]:
    made = Plane(postgres.url("roles"), postgres.socket)
    initialise(made.url)
    for _ in range(2):  # safe to repeat
        made.run_roles()
    for login, role in LOGINS.items():
        postgres.sql(f"CREATE ROLE {login} LOGIN IN ROLE {role}")
    access = ", ".join(
        f"('{login}', '{OTHER if 'other' in login else MINE}')" for login in LOGINS if login != "t_owner"
    )
    postgres.sql(f"INSERT INTO crkafka.region_access VALUES {access}", database="roles")
    for login, region in (("t_host", MINE), ("t_other_host", OTHER)):
        with closing(made.store(login)) as store:
            _merge_one(store, region)
    yield made
    postgres.drop("roles")
    for name in (*LOGINS, *dict.fromkeys(LOGINS.values())):
        postgres.sql(f"DROP OWNED BY {name}; DROP ROLE {name}")


def _merge_one(store: SqlStore, region: str) -> None:
    """A region from its first row to a merged checkpoint, all by one login."""
    life.declare(store, new_region(region, members_wanted=1))
    own = ControlPlane(store, region)
    own.do(lambda tx: life.start(tx, by="me"))
    player = Player(own, f"{region}/0", random=random.Random(0))
    player.assign(1, PARTITIONS)
    for _ in range(4):
        player.step()
        own.do(advance.advance)
    own.do(lambda tx: cuts.open_cut(tx, token="a", cause="test"))
    player.step()
    own.do(advance.advance)
    assert own.read(lambda _, row: (row.phase, row.head)) == (Phase.RUNNING, 1)


def test_a_region_role_runs_its_region_and_neither_sees_nor_changes_another(plane: Plane) -> None:
    with closing(plane.store("t_host")) as store:
        assert [r.name for r in store.regions()] == [MINE]
        assert store.wait(MINE, -1, 0.1) > 0
        with store.read(OTHER) as reader:
            for row in (Region, Event, MergedOffset, Segment, Lease):
                assert reader.select(row) == [], row
        with store.read(MINE) as reader:
            assert reader.count(Event) > 0
            assert {g.region for g in reader.select(Group)} == {MINE, OTHER}  # a group belongs to one region alone
        with pytest.raises(NoSuchRegion):
            store.run(OTHER, lambda tx: tx.set_region(stop_reason="mine now"))
        with pytest.raises(ServiceUnavailable, match="does not let this user do that"):
            life.declare(store, new_region("third", members_wanted=1))
    assert plane.sql("t_host", f"UPDATE region SET stop_reason = 'mine now' WHERE name = '{OTHER}'") == 0
    assert plane.sql("t_host", f"DELETE FROM merged_offset WHERE region = '{OTHER}'") == 0
    for refused in (
        f"UPDATE event SET region = '{OTHER}'",
        "INSERT INTO region_access VALUES ('t_host', 'refunds')",
        "UPDATE crkafka_version SET version_num = 'x'",
        "ALTER TABLE region DISABLE ROW LEVEL SECURITY",
        "DROP TABLE event",
    ):
        with pytest.raises(DBAPIError, match=r"row-level security|permission denied|must be owner"):
            plane.sql("t_host", refused)


def test_init_by_a_region_role_changes_nothing_of_the_schema_and_is_no_error(plane: Plane) -> None:
    initialise(plane.address("t_host"))
    open_store(plane.address("t_viewer")).close()


def test_a_reader_holds_what_it_reads_and_writes_nothing_else(plane: Plane) -> None:
    with closing(plane.store("t_reader")) as store, closing(plane.store("t_reader2")) as second:
        own, others = ControlPlane(store, MINE), ControlPlane(second, MINE)
        taken = own.do(lambda tx: reading.take(tx, holder="me", token="read-1", length=60))
        assert taken.plan.checkpoints == (1,) and taken.plan.rows > 0
        own.do(lambda tx: leases.renew(tx, taken.lease, 120))
        own.do(lambda tx: reading.follow(tx, stream="s", holder="me", after=1, length=60))
        # Another reader sees that lease, and can neither end it nor take it over.
        assert others.do(lambda tx: tx.delete(Lease, ("kind", "=", "reader"))) == 0
        for stolen in (taken.lease, replace(taken.lease, until=0.0)):
            with pytest.raises(ServiceUnavailable, match="row-level security"):
                others.do(lambda tx, lease=stolen: tx.put(lease))  # type: ignore[misc]
        refused: list[Callable[[Any], Any]] = [
            lambda tx: tx.set_region(stop_reason="by a reader"),
            lambda tx: tx.set_region(),  # the version alone, which wakes everybody
            lambda tx: events.log(tx, "said"),
            lambda tx: leases.take(tx, "driver", holder="me", token="d", length=60),
            lambda tx: (
                tx.put(replace(taken.lease, region=OTHER)) if tx.name == OTHER else life.stop(tx, token="t", by="me")
            ),
        ]
        for work in refused:
            with pytest.raises(ServiceUnavailable, match=r"permission denied|row-level security"):
                own.do(work)
        with pytest.raises(NoSuchRegion):
            ControlPlane(store, OTHER).do(lambda tx: reading.take(tx, holder="me", token="x", length=60))
        own.do(lambda tx: leases.release(tx, taken.lease))
        own.do(lambda tx: tx.delete(Lease, ("kind", "=", "reader")))
        with store.read(MINE) as reader:
            assert not [lease for lease in reader.select(Lease) if lease.kind == "reader"]


def test_retirement_by_the_region_sees_what_readers_hold(plane: Plane) -> None:
    from crkafka_core.plane import retire

    with closing(plane.store("t_reader")) as reads, closing(plane.store("t_host")) as hosts:
        own, host = ControlPlane(reads, MINE), ControlPlane(hosts, MINE)
        taken = own.do(lambda tx: reading.take(tx, holder="me", token="read-2", length=60))
        assert [lease.holder for lease in host.read(lambda r, row: leases.held(r, reading.KIND))] == ["me"]
        assert host.read(retire._bound) == (0, ["me reads what comes after 0"])
        own.do(lambda tx: leases.release(tx, taken.lease))


def test_a_viewer_sees_the_views_of_its_region_and_changes_nothing(plane: Plane) -> None:
    for view in ("v_regions", "v_checkpoints", "v_offsets", "v_members", "v_resets", "v_timeline"):
        assert {row[0] for row in plane.sql("t_viewer", f"SELECT region FROM {view}")} == {MINE}, view
    assert {row[0] for row in plane.sql("postgres", "SELECT region FROM v_regions")} == {MINE, OTHER}
    with closing(plane.store("t_viewer")) as store:
        for work in (lambda tx: tx.region(), lambda tx: events.log(tx, "said")):
            with pytest.raises(ServiceUnavailable, match="permission denied"):
                store.run(MINE, work)
    for table in ("event", "lease", "region", "region_access"):
        with pytest.raises(DBAPIError, match="permission denied"):
            plane.sql("t_viewer", f"DELETE FROM {table}")


def test_views_ask_with_the_rights_of_who_reads_them_also_after_the_next_init(plane: Plane) -> None:
    initialise(plane.address("t_owner"))
    assert {row[0] for row in plane.sql("t_viewer", "SELECT region FROM v_regions")} == {MINE}
    owner = "SELECT pg_get_userbyid(relowner) FROM pg_class WHERE relname = 'v_regions'"
    assert plane.sql("postgres", owner)[0][0] == "crkafka_owner"


def test_a_table_of_a_later_version_is_closed_until_the_roles_are_made_again(plane: Plane) -> None:
    plane.sql("t_owner", "CREATE TABLE later (region text)")
    try:
        for login in ("t_host", "t_reader", "t_viewer"):
            with pytest.raises(DBAPIError, match="permission denied"):
                plane.sql(login, "SELECT * FROM later")
    finally:
        plane.sql("t_owner", "DROP TABLE later")


def test_every_table_is_behind_row_level_security(plane: Plane) -> None:
    """Also one that a later version brings: the roles are made from what is there."""
    without = "SELECT relname FROM pg_class WHERE relkind = 'r' AND NOT relrowsecurity"
    found = plane.sql("postgres", f"{without} AND relnamespace = 'crkafka'::regnamespace")
    assert [row[0] for row in found] == ["crkafka_version"]


def test_a_member_role_does_a_members_part_and_can_undo_nothing_that_was_done(plane: Plane) -> None:
    with closing(plane.store("t_member")) as store:
        own = ControlPlane(store, MINE)
        player = Player(own, f"{MINE}/0", random=random.Random(0))
        player.assign(7, PARTITIONS)

        def run_to(phase: Phase) -> None:
            for _ in range(12):
                player.step()
                if own.do(advance.advance) is phase and player.reported:
                    return
            raise AssertionError(own.read(lambda _, row: row))

        run_to(Phase.RUNNING)
        for if_new, status in ((False, "MERGED"), (True, "EMPTY")):
            cut = own.do(lambda tx: cuts.open_cut(tx, token=f"member {if_new}", cause="test", if_new=if_new))  # noqa: B023
            player.random = random.Random(1) if if_new else player.random
            player.step()
            run_to(Phase.RUNNING)
            assert plane.sql(
                "t_member", f"SELECT status FROM checkpoint WHERE region = '{MINE}' AND id = {cut.id}"
            ) == [(status,)]
        own.do(lambda tx: cuts.open_cut(tx, token="aborted", cause="test"))
        own.do(lambda tx: members.lose(tx, player.name, player.incarnation, by=player.name, why="it failed"))
        player.crash()
        run_to(Phase.RUNNING)
        own.do(lambda tx: starts.forget(tx, "refunds", by="test"))
        postgres = f"UPDATE region SET phase_since = 2e9 WHERE name = '{MINE}'; UPDATE reset SET at = 2e9"
        plane.sql("postgres", postgres)  # the clock steps back, by which waits and the dates of resets are corrected
        own.do(lambda tx: resets.failed(tx, ResetCause.FAILURE, "once more", member=player.name, epoch=player.epoch))
        run_to(Phase.RUNNING)
        assert not own.read(lambda reader, _: [i for i in starts.initials(reader) if i.forgotten])
        assert plane.sql("t_member", "SELECT count(*) FROM reset WHERE at < 2e9")[0][0] > 0
        own.do(lambda tx: restored.notice(tx, "a backup was restored", by="test"))
        kept = plane.sql("t_member", "SELECT count(*) FROM event")[0][0]
        accepted: dict[str, Any] = {}
        for forbidden in (
            "DELETE FROM event",
            "UPDATE event SET text = 'nothing happened'",
            "DELETE FROM merged_offset",
            "DELETE FROM erased_records",
            "DELETE FROM dead_numbers",
            "UPDATE dead_numbers SET after = 0",
            f"INSERT INTO dead_numbers VALUES ('{MINE}', 1000000, 0)",
            "DELETE FROM region",
            "DELETE FROM initial_offset",
            "DELETE FROM table_commit",
            "UPDATE merged_offset SET to_offset = to_offset + 1",
            "INSERT INTO merged_offset SELECT region, checkpoint, topic || 'x', partition, topic_id, 0, 0, 0, '', -1 FROM merged_offset",
            "UPDATE segment SET path = path || 'x', rows = 0",
            "INSERT INTO segment SELECT region, path || '2', checkpoint, member, incarnation, epoch, 1, 1, '', '[]' FROM segment",
            "UPDATE contribution SET rows = 0",
            "UPDATE contributed_offset SET to_offset = 0",
            "INSERT INTO filler SELECT region, id, 'late', 'late', '{}', '{}' FROM checkpoint WHERE status = 'MERGED'",
            'UPDATE initial_offset SET "offset" = "offset" + 1',
            "UPDATE reset SET cause = 'start', text = 'by a person'",
            "UPDATE region SET went_back = false",
            *(f"UPDATE region SET {name} = 0" for name in ("head", "epoch", "filling", "opened", "next_event")),
            "UPDATE region SET head = head + 1",
            "UPDATE region SET limits_json = '{}'",
            "UPDATE region SET config_json = '{}'",
            "UPDATE region SET uid = 'another'",
            "UPDATE region SET members_wanted = 9",
            f"INSERT INTO consumer_group VALUES ('cluster', 'another', '{MINE}', 1)",
        ):
            try:
                accepted[forbidden] = plane.sql("t_member", forbidden)
            except DBAPIError as refused:
                assert re.search("row-level security|permission denied", str(refused)), refused
        for of_no_row in (
            "DELETE FROM segment",
            "DELETE FROM contributed_offset",
            "UPDATE checkpoint SET status = 'ABORTED'",
            "DELETE FROM checkpoint WHERE status <> 'EMPTY'",
            "UPDATE filler SET offsets_json = '{}' WHERE checkpoint <= (SELECT max(id) FROM checkpoint)",
        ):
            if rows := plane.sql("t_member", of_no_row):
                accepted[of_no_row] = rows
        assert accepted == {}
        with pytest.raises(ServiceUnavailable, match="permission denied"):
            own.do(lambda tx: tx.delete(MergedOffset))
        assert plane.sql("t_member", "SELECT count(*) FROM event")[0][0] == kept


def test_a_member_that_may_make_functions_elsewhere_in_the_database_takes_nothing_back_by_them(plane: Plane) -> None:
    """Before PostgreSQL's own by the search path, they answered for what refuses its updates."""
    plane.sql("postgres", "GRANT CREATE ON SCHEMA public TO t_member")
    try:
        plane.sql(
            "t_member", "CREATE FUNCTION public.pg_has_role(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT true'"
        )
        for table, change in (("region", "epoch = epoch - 1"), ("initial_offset", '"offset" = "offset" + 1')):
            with pytest.raises(DBAPIError, match="takes nothing back"):
                plane.sql("t_member", f"SET search_path = public, pg_catalog; UPDATE crkafka.{table} SET {change}")
    finally:
        plane.sql(
            "postgres",
            "DROP FUNCTION IF EXISTS public.pg_has_role(text, text); REVOKE CREATE ON SCHEMA public FROM t_member",
        )


OPERATORS = {
    "reset to an older one",
    "scale",
    "retire",
    "clean up",
    "note what was erased",
    "undeclare the last table that owes a fence",
    "drop a goal",
    "trust a control plane that caught up",
    "go on from a restored backup",
    "delete",
}
"""Cases of `mutation_cases` that are an operator's: a member's role is refused them."""


def test_a_member_role_may_do_what_members_hosts_and_writers_do_and_no_operators_part(plane: Plane) -> None:
    """Each mutation of the control plane, on a region that an operator has made."""
    access = f"INSERT INTO region_access SELECT l, '{NAME}' FROM unnest(ARRAY['t_host', 't_member']) l"
    plane.sql("postgres", access)
    tables = "SELECT relname FROM pg_class WHERE relnamespace = 'crkafka'::regnamespace AND relkind = 'r'"
    names = {row[0] for row in plane.sql("postgres", tables)} - {"crkafka_version", "region_access", "region"}
    forget = "; ".join(
        [f"DELETE FROM {t} WHERE region = '{NAME}'" for t in names] + [f"DELETE FROM region WHERE name = '{NAME}'"]
    )
    refused: set[str] = set()
    with closing(plane.store("t_host")) as host, closing(plane.store("t_member")) as member:
        for name, (before, make) in CASES.items():
            plane.sql("postgres", forget)
            stage = Stage(host)
            before(stage)
            stage.plane.store = member
            try:
                stage.plane.do(make(stage))
            except ServiceUnavailable as error:
                assert re.search("row-level security|permission denied", str(error)), (name, error)
                refused.add(name)
            except CrkafkaError as error:
                assert name in (
                    "contribute what does not match",
                    "a topic is gone",
                    "stop before what a backup lost",
                ), error
    plane.sql("postgres", forget)
    assert refused == OPERATORS


def test_a_column_of_a_region_that_a_later_version_adds_is_no_members_to_change(plane: Plane) -> None:
    asked = "SELECT has_column_privilege('t_member', 'crkafka.region', '{}', 'UPDATE')"
    plane.sql("t_owner", "ALTER TABLE region ADD COLUMN later text")
    try:
        plane.run_roles()
        assert plane.sql("postgres", asked.format("later")) == [(False,)]
        assert plane.sql("postgres", asked.format("head")) == [(True,)]
    finally:
        plane.sql("t_owner", "ALTER TABLE region DROP COLUMN later")
