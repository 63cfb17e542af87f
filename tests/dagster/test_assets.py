"""Records, checks and tables: what a run reads and writes, and what it refuses (SPEC A3, A4, A7)."""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import dagster as dg
import pandas
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame

from crkafka_core.control import Tx
from crkafka_core.lake import audit
from crkafka_core.model.errors import Refused
from crkafka_core.model.rows import Checkpoint, Segment
from crkafka_core.plane import reading
from crkafka_core.plane import tables as plane_tables
from crkafka_core.segments.batch import CHECKPOINT
from crkafka_core.spark import frames
from dagster_project import consistent_region, opened, partitions, resources, windows
from dagster_project.assets import checks
from dagster_project.assets import tables as tables_
from dagster_project.downstream import checkpointed, nothing_superseded, over_or_rewound, removed, superseded
from dagster_project.metadata import ALL_ROWS, ROWS
from dagster_project.names import key_of
from dagster_project.sensors.tables import RANGE_END, RANGE_START
from tests.dagster.conftest import LandedSeat, failure

pytestmark = pytest.mark.dagster
BRONZE: list[Any] = [[{"name": "bronze", "format": "delta", "path": "tables/bronze"}]]


def materialize(seat: LandedSeat, asset: dg.AssetKey, first: int, last: int, **more: Any) -> dg.ExecuteInProcessResult:
    tags = {RANGE_START: key_of(first), RANGE_END: key_of(last)}
    job = seat.defs.resolve_implicit_job_def_def_for_assets([asset])
    assert job is not None
    return job.execute_in_process(instance=seat.instance, asset_selection=[asset], tags=tags, **more)


def numbers(seat: LandedSeat, asset: dg.AssetKey) -> dict[str, dict[str, Any]]:
    found = seat.instance.fetch_materializations(asset, limit=100).records
    return {
        r.partition_key or "": {k: v.value for k, v in r.asset_materialization.metadata.items()}
        for r in found
        if r.asset_materialization
    }


def test_what_follows_the_records_is_woken_by_their_publication_and_nothing_in_dagster_makes_them(
    landed: LandedSeat,
) -> None:
    @dg.asset(
        partitions_def=partitions.definition(landed.names),
        deps=[landed.names.records],
        automation_condition=dg.AutomationCondition.eager(),
    )
    def follower() -> None:
        """Follows each publication."""

    merged = dg.Definitions.merge(landed.defs, dg.Definitions(assets=[follower]))
    assert not merged.resolve_asset_graph().get(landed.names.records).is_executable
    cursor = None

    def woken() -> set[str]:
        nonlocal cursor
        found = dg.evaluate_automation_conditions(defs=merged, instance=landed.instance, cursor=cursor)
        cursor = found.cursor
        return set(found.get_requested_partitions(follower.key))

    woken()
    landed.landing.land(10, times=2)
    landed.publish()
    assert woken() == {key_of(1), key_of(2)}
    assert woken() == set()
    landed.landing.land(10)
    landed.publish()
    assert woken() == {key_of(3)}


@pytest.mark.parametrize("tables", BRONZE)
def test_a_superseded_checkpoint_is_refused(landed: LandedSeat) -> None:
    landed.landing.land(10, times=3)
    landed.publish()
    landed.landing.rewind(1)
    result = materialize(landed, landed.names.table("bronze"), 2, 3, raise_on_error=False)
    assert "Checkpoint 2 of region orders is superseded" in failure(result)


@pytest.mark.parametrize("tables", BRONZE)
def test_a_backfill_that_is_too_large_is_refused_with_the_way_to_replay(
    landed: LandedSeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    landed.landing.land(10, times=3)
    landed.publish()
    monkeypatch.setattr(partitions, "LARGEST", 2)
    wrote: list[Any] = []
    monkeypatch.setattr(tables_, "write", lambda *args: wrote.append(args[-1]) or {i: {ROWS: 20} for i in args[-1]})
    bronze = landed.names.table("bronze")
    assert materialize(landed, bronze, 2, 3).success
    said = failure(materialize(landed, bronze, 1, 3, raise_on_error=False))
    assert wrote == [[2, 3]]
    assert "3 checkpoints of region orders are too many" in said and "`after: 0` and `upto: 3`" in said


def outcome(seat: LandedSeat, *names: str) -> dict[str, tuple[bool, str]]:
    """As a person executes them on the page of `records`: all, or some by name."""
    chosen = names or ("contiguous", "rows_equal_segments", "no_duplicates")
    keys = [dg.AssetCheckKey(seat.names.records, name) for name in chosen]
    job = dg.define_asset_job("checks", selection=dg.AssetSelection.checks(*keys))
    made = dg.Definitions.merge(seat.defs, dg.Definitions(jobs=[job])).resolve_job_def("checks")
    result = made.execute_in_process(instance=seat.instance)
    return {e.check_name: (e.passed, e.description or "") for e in result.get_asset_check_evaluations()}


def test_a_segment_that_was_changed_a_row_twice_and_a_hole_are_each_found(landed: LandedSeat) -> None:
    landed.landing.land(10, times=2)
    plane = landed.region.plane
    assert outcome(landed, "contiguous") == {"contiguous": (True, "")}
    assert all(passed for passed, _ in outcome(landed).values())

    def swap(tx) -> None:  # type: ignore[no-untyped-def]
        """Checkpoint 2's first segment names the file of checkpoint 1: its rows are there twice, its own are missing."""
        first, second = (tx.select(Segment, ("checkpoint", "=", i), order=("member",))[0] for i in (1, 2))
        path = landed.landing.storage
        data = path.open_read(first.path).read()
        out = path.open_write(second.path + ".other")
        out.write(memoryview(data))
        out.close()
        tx.delete(Segment, ("path", "=", second.path))
        tx.add(replace(second, path=second.path + ".other"))

    plane.do(swap)
    found = outcome(landed)
    assert not found["no_duplicates"][0] and "orders[0]: offset 0 comes after 9" in found["no_duplicates"][1]
    assert (
        not found["rows_equal_segments"][0] and "offsets 0 … 9 in the range [10, 20)" in found["rows_equal_segments"][1]
    )

    def hole(tx) -> None:  # type: ignore[no-untyped-def]
        from crkafka_core.model.rows import MergedOffset

        row = tx.get(MergedOffset, 2, "orders", 1)
        tx.put(replace(row, from_offset=11))

    plane.do(hole)
    said = outcome(landed)["contiguous"][1]
    assert "orders[1] begins at 11 and leaves out records before what its parent 1 left at 10 (checkpoint 2" in said


def test_a_check_reads_no_more_rows_than_fit(landed: LandedSeat, monkeypatch: pytest.MonkeyPatch) -> None:
    for rows in (10, 10, 10, 50):
        landed.landing.land(rows)

    def checked() -> tuple[int, ...]:
        return tuple(c.id for c in landed.region.plane.read(lambda reader, _: checks.latest(reader)))

    assert checked() == (1, 2, 3, 4)
    monkeypatch.setattr(checks, "ROWS", 125)
    assert checked() == (3, 4)
    monkeypatch.setattr(checks, "ROWS", 5)
    assert checked() == (4,)


@pytest.mark.parametrize("tables", BRONZE)
def test_what_others_wrote_into_a_table_is_told_with_the_remedy(
    landed: LandedSeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC K6: what a table holds is compared by `lake.audit`; here, that the check asks it, and what the check says."""
    for found, said in (
        (audit.TableAudit(), None),
        (
            audit.TableAudit((7,), (1, 2), 3),
            "rows of checkpoints that it should not hold (7); other rows than were merged of checkpoints 1, 2; "
            "3 commits of another program. The job mend_tables undoes them.",
        ),
        (audit.TableAudit(unknown=4), "4 rows of no checkpoint that belongs there. The job mend_tables undoes them."),
    ):
        monkeypatch.setattr(audit, "look", lambda *_, found=found, **__: found)
        result = landed.defs.resolve_job_def("orders_check_data").execute_in_process(instance=landed.instance)
        outcome = {e.check_name: e for e in result.get_asset_check_evaluations()}
        assert set(outcome) == {"contiguous", "rows_equal_segments", "no_duplicates", "nothing_foreign"}
        assert (outcome["nothing_foreign"].passed, outcome["nothing_foreign"].description) == (said is None, said)


@pytest.mark.parametrize("tables", BRONZE)
def test_a_table_keeps_up_by_a_range_and_a_backfill_rewrites_it(landed: LandedSeat) -> None:
    landed.landing.land(10, times=3)
    landed.publish()
    bronze = landed.names.table("bronze")
    (request,) = landed.tick("publish").run_requests
    job = landed.defs.resolve_implicit_job_def_def_for_assets([bronze])
    assert job is not None
    assert job.execute_in_process(instance=landed.instance, asset_selection=[bronze], tags=request.tags).success
    assert acknowledged(landed) == 3
    assert {k: v[ROWS] for k, v in numbers(landed, bronze).items()} == {key_of(i): 20 for i in (1, 2, 3)}
    whole = [numbers(landed, bronze)[key_of(3)][key] for key in ("checkpoints_behind", ALL_ROWS, "version")]
    assert whole[:2] == [0, 60] and whole[2] not in ("", "none")  # its page shows them of the latest materialization
    assert rows(landed) == {1: 20, 2: 20, 3: 20}
    assert materialize(landed, bronze, 2, 3).success  # a backfill: each row is there once afterwards
    assert rows(landed) == {1: 20, 2: 20, 3: 20}
    landed.landing.land(5, times=2)
    landed.publish()
    assert materialize(landed, bronze, 5, 5).success  # 4 comes along: a table advances without a gap
    assert rows(landed) == {1: 20, 2: 20, 3: 20, 4: 10, 5: 10}
    assert set(numbers(landed, bronze)) == {key_of(i) for i in range(1, 6)}
    replayed = landed.run("replay", {"rewrite": {"after": 1, "upto": 4}})
    assert replayed.success and rows(landed) == {1: 20, 2: 20, 3: 20, 4: 10, 5: 10}
    of_four = dg.AssetRecordsFilter(asset_key=bronze, asset_partitions=[key_of(4)])
    (newest,) = landed.instance.fetch_materializations(of_four, limit=1).records
    assert newest.asset_materialization is not None
    told = {k: v.value for k, v in newest.asset_materialization.metadata.items()}
    assert (told[ROWS], told[ALL_ROWS], told["replayed"]) == (10, 80, True)


def acknowledged(seat: LandedSeat) -> int:
    return seat.region.plane.read(lambda reader, row: plane_tables.of(reader, "bronze")).acknowledged


def rows(seat: LandedSeat) -> dict[int, int]:
    """Rows per checkpoint as the table is read."""
    table = DeltaTable(seat.config.tables[0].path).to_pyarrow_table()
    return dict(sorted(Counter(table[CHECKPOINT].to_pylist()).items()))


def run_range(seat: LandedSeat, asset: dg.AssetsDefinition, first: int, last: int) -> dg.ExecuteInProcessResult:
    merged = dg.Definitions.merge(seat.defs, dg.Definitions(assets=[asset]))
    job = merged.resolve_implicit_job_def_def_for_assets([asset.key])
    assert job is not None
    tags = {RANGE_START: key_of(first), RANGE_END: key_of(last)}
    return job.execute_in_process(instance=seat.instance, asset_selection=[asset.key], tags=tags)


@pytest.mark.soak
@pytest.mark.spark
def test_a_users_asset_of_three_lines_gets_the_rows_of_its_range_by_the_type_that_it_names(landed: LandedSeat) -> None:
    """SPEC A3, T1: until the run ends, no retirement takes them away."""
    counted: dict[str, tuple[int, list[str], int]] = {}

    def leases() -> int:
        return landed.region.plane.read(lambda r, row: len(reading.leases.held(r, reading.KIND)))

    @checkpointed("orders")
    def totals(records: DataFrame) -> None:
        counted["spark"] = (records.count(), records.columns, leases())

    @checkpointed("orders", name="few")
    def few(records: pandas.DataFrame) -> None:
        counted["pandas"] = (len(records), list(records.columns), leases())

    landed.landing.land(10, times=2)
    landed.publish()
    for asset, last in ((totals, 2), (few, 1)):
        assert run_range(landed, asset, 1, last).success
    assert (counted["spark"][0], counted["pandas"][0]) == (40, 20)
    columns = {"key", "value", "topic", "partition", "offset", "headers"}
    assert columns <= set(counted["spark"][1]) and columns <= set(counted["pandas"][1])
    assert counted["spark"][2] == 1 and leases() == 0


def test_what_a_rewind_left_in_a_users_asset_is_listed_until_it_is_removed(landed: LandedSeat) -> None:
    mine = dg.AssetKey("totals")

    @dg.asset(key=mine)
    def totals() -> None:
        """The user's."""

    def outcome() -> dg.AssetCheckEvaluation:
        check = nothing_superseded("totals", "orders")
        merged = dg.Definitions.merge(
            landed.defs,
            dg.Definitions(
                assets=[totals],
                asset_checks=[check],
                jobs=[dg.define_asset_job("look", dg.AssetSelection.checks(check))],
            ),
        )
        (found,) = (
            merged.resolve_job_def("look").execute_in_process(instance=landed.instance).get_asset_check_evaluations()
        )
        return found

    landed.landing.land(10, times=3)
    landed.publish()
    for checkpoint in (1, 2):
        landed.instance.report_runless_asset_event(dg.AssetMaterialization(mine, partition=key_of(checkpoint)))
    assert outcome().passed
    landed.landing.rewind(1)
    landed.publish()
    assert superseded(landed.instance, landed.resource, mine) == [key_of(2)]  # 3 was never in it
    assert not outcome().passed and key_of(2) in (outcome().description or "")
    removed(landed.instance, "totals", [key_of(2)])
    assert outcome().passed and superseded(landed.instance, landed.resource, mine) == []


HOURS = dg.HourlyPartitionsDefinition(start_date="2024-01-01-00:00")
HOUR = 3_600.0
AT = 1_704_110_400.0  # 2024-01-01 12:00 UTC


def merge_at(seat: LandedSeat, times: dict[int, float]) -> None:
    def write(tx: Tx) -> None:
        for checkpoint, at in times.items():
            row = tx.get(Checkpoint, checkpoint)
            assert row is not None
            tx.put(replace(row, merged_at=at))

    seat.region.plane.do(write)


def test_an_hour_has_the_checkpoints_that_were_merged_within_it(landed: LandedSeat) -> None:
    """Half-open, by the time of the merge; what is empty is not in it, and an hour that goes on is refused."""
    for rows in (10, 10, 0, 10, 10):
        landed.landing.land(rows)
    merge_at(landed, {1: AT - 0.1, 2: AT, 3: AT + 5, 4: AT + HOUR - 0.1, 5: AT + HOUR})

    def within(start: float, end: float) -> list[int]:
        span = dg.TimeWindow(datetime.fromtimestamp(start, UTC), datetime.fromtimestamp(end, UTC))
        return windows.merged_within(landed.resource, span)

    assert [within(AT + h * HOUR, AT + (h + 1) * HOUR) for h in (-2, -1, 0, 1)] == [[], [1], [2, 4], [5]]
    with pytest.raises(Refused, match=r"is not over: the control plane's clock is \d+ s before its end"):
        within(AT, time.time() + HOUR)
    end = time.time() + 1
    assert within(AT, end) == [2, 4, 5] and time.time() >= end  # the clocks differ a little
    landed.landing.rewind(2)
    assert within(AT, AT + HOUR) == [2]


def test_an_hour_of_which_checkpoints_are_forgotten_is_refused_and_not_made_empty(landed: LandedSeat) -> None:
    landed.landing.land(10, times=3)
    merge_at(landed, {1: AT, 2: AT + HOUR, 3: AT + 2 * HOUR})
    landed.landing.retire(1, 2, history=1)

    def within(hour: int) -> list[int]:
        begins, ends = (datetime.fromtimestamp(AT + h * HOUR, UTC) for h in (hour, hour + 1))
        return windows.merged_within(landed.resource, dg.TimeWindow(begins, ends))

    assert [within(1), within(2)] == [[2], [3]]
    with pytest.raises(Refused, match="begins before the oldest checkpoint that the region still knows"):
        within(0)


def test_an_hour_that_a_rewind_made_old_is_listed_until_it_is_materialized_again(landed: LandedSeat) -> None:
    mine = dg.AssetKey("hourly")
    landed.landing.land(10, times=3)
    merge_at(landed, {1: AT, 2: AT + 1, 3: AT + HOUR})
    hours = [f"2024-01-01-{hour}:00" for hour in (11, 12, 13)]
    for hour in hours:
        landed.instance.report_runless_asset_event(dg.AssetMaterialization(mine, partition=hour))

    def old() -> list[str]:
        return superseded(landed.instance, landed.resource, mine, HOURS)

    assert old() == []
    landed.landing.rewind(1)
    assert old() == hours[1:]
    landed.instance.report_runless_asset_event(dg.AssetMaterialization(mine, partition=hours[1]))
    assert old() == hours[2:]


def test_an_hour_that_was_read_before_a_rewind_and_materialized_after_it_is_listed(landed: LandedSeat) -> None:
    landed.landing.land(10, times=2)
    merge_at(landed, {1: AT, 2: AT + 1})
    while_it_runs = [lambda: landed.landing.rewind(1)]

    @dg.asset(partitions_def=HOURS)
    def hourly() -> None:
        if while_it_runs:
            while_it_runs.pop()()

    for old in (["2024-01-01-12:00"], []):
        assert dg.materialize([hourly], partition_key="2024-01-01-12:00", instance=landed.instance).success
        assert superseded(landed.instance, landed.resource, hourly.key, HOURS) == old


def test_hours_that_ended_while_nobody_looked_are_all_wanted(landed: LandedSeat) -> None:
    @checkpointed("orders", by=HOURS)
    def hourly(records: pandas.DataFrame) -> None: ...

    landed.landing.land(1)
    landed.publish()
    merged = dg.Definitions.merge(landed.defs, dg.Definitions(assets=[hourly]))

    def wanted(hour: int, cursor: Any = None) -> Any:
        at = datetime.fromtimestamp(AT + hour * HOUR + 10, UTC)
        return dg.evaluate_automation_conditions(merged, landed.instance, evaluation_time=at, cursor=cursor)

    first = wanted(1)
    assert not first.get_requested_partitions(hourly.key), "what was over before is a backfill"
    then = wanted(3, first.cursor)
    assert then.get_requested_partitions(hourly.key) == {"2024-01-01-13:00", "2024-01-01-14:00"}


def test_an_asset_by_day_is_made_again_after_a_rewind_and_a_backfill_by_one_condition(landed: LandedSeat) -> None:
    """As docs/dagster.md has it: each day once it is over, and once more when a rewind has superseded a checkpoint of its own."""
    days = dg.DailyPartitionsDefinition(start_date="2024-01-01", end_offset=0)

    @checkpointed("orders", by=days, automation_condition=over_or_rewound(landed.config, days))
    def daily(records: pandas.DataFrame) -> None: ...

    landed.landing.land(1, times=3)
    merge_at(landed, {1: AT, 2: AT + 24 * HOUR, 3: AT + 48 * HOUR})
    landed.publish()
    merged = dg.Definitions.merge(landed.defs, dg.Definitions(assets=[daily]))
    first, second = "2024-01-01", "2024-01-02"

    def wanted(day: int, cursor: Any = None) -> Any:
        at = datetime.fromtimestamp(AT + (24 * day) * HOUR, UTC)
        return dg.evaluate_automation_conditions(merged, landed.instance, evaluation_time=at, cursor=cursor)

    def made(*keys: str) -> None:
        for key in keys:
            landed.instance.report_runless_asset_event(dg.AssetMaterialization(daily.key, partition=key))

    begun = wanted(0)
    over = wanted(2, begun.cursor)
    assert over.get_requested_partitions(daily.key) == {first, second}
    made(first, second)
    quiet = wanted(2, over.cursor)
    made(first)  # a backfill
    beside = wanted(2, quiet.cursor)
    assert not quiet.get_requested_partitions(daily.key) and not beside.get_requested_partitions(daily.key)
    landed.landing.rewind(1)
    again = wanted(2, beside.cursor)
    assert again.get_requested_partitions(daily.key) == {second}, "the other day keeps what it has"
    asked = wanted(2, again.cursor)
    assert not asked.get_requested_partitions(daily.key), "it is asked for once"
    made(second)
    assert not wanted(2, asked.cursor).get_requested_partitions(daily.key)


def test_nothing_is_opened_before_it_is_used(landed: LandedSeat, monkeypatch: pytest.MonkeyPatch) -> None:
    """A code server loads definitions, and sets resources up at each tick: no database, no Spark, no connection by that."""
    monkeypatch.setattr(opened, "_opened", {})
    stores: list[str] = []
    sockets: list[tuple[Any, ...]] = []
    kept, connect = resources.open_store, socket.socket.connect

    def counted(url: str) -> Any:
        stores.append(url)
        return kept(url)

    def connecting(self: socket.socket, address: Any) -> None:
        sockets.append((address,))
        connect(self, address)

    monkeypatch.setattr(resources, "open_store", counted)
    monkeypatch.setattr(socket.socket, "connect", connecting)
    monkeypatch.setattr(resources.SparkSessionResource, "session", lambda _: sockets.append(("spark",)))
    defs = consistent_region(landed.config)
    defs.get_repository_def()
    dg.Definitions.validate_loadable(defs)
    resource = landed.resource
    assert (stores, sockets) == ([], [])
    assert resource.read(lambda reader, row: reader.count(Checkpoint)) == 0
    assert stores == [landed.config.control_plane] and sockets == []


def test_a_users_asset_asks_for_the_rows_of_its_range_or_hour_alone(
    landed: LandedSeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without Spark: which checkpoints are held and read."""
    asked: list[list[int]] = []

    @contextmanager
    def held(*_: Any, ids: list[int], **__: Any) -> Iterator[str]:
        asked.append(list(ids))
        yield "rows"

    monkeypatch.setattr(frames, "held", held)
    monkeypatch.setattr(resources.SparkSessionResource, "session", lambda _: None)

    @checkpointed("orders")
    def totals(records: str) -> None:
        assert records == "rows"

    @checkpointed("orders", by=HOURS)
    def hourly(records: str) -> None:
        assert records == "rows"

    landed.landing.land(10, times=4)
    merge_at(landed, {1: AT, 2: AT + 5, 3: AT + HOUR, 4: AT + HOUR})
    landed.publish()
    merged = dg.Definitions.merge(landed.defs, dg.Definitions(assets=[totals, hourly]))
    job = merged.resolve_implicit_job_def_def_for_assets([hourly.key])
    assert job is not None
    assert run_range(landed, totals, 2, 4).success and run_range(landed, totals, 3, 3).success
    window = {"asset_selection": [hourly.key], "partition_key": "2024-01-01-12:00"}
    assert job.execute_in_process(instance=landed.instance, **window).success
    assert asked == [[2, 3, 4], [3], [1, 2]]
