"""Compliance: rows come back as they went in, and questions get the same answers everywhere."""

from __future__ import annotations

import time
from dataclasses import replace

from checkpoints_db.testing.samples import HUGE, REGION, TOPIC, offsets, raises, region, sample
from crkafka_core.control import Cond, KeyExists, Store, Tx, own_key
from crkafka_core.model.errors import NoSuchRegion
from crkafka_core.model.rows import (
    ROWS,
    Checkpoint,
    CheckpointStatus,
    Event,
    Group,
    Initial,
    Launch,
    Member,
    MemberStatus,
    MergedOffset,
    Region,
    Start,
)


class RowCompliance:
    """Each test gets a store that is empty."""

    def test_every_row_type_comes_back_equal(self, store: Store) -> None:
        store.create(region(), lambda tx: None)
        for row in ROWS:
            if row is Region:
                continue
            for count in (1, 3):
                put = [sample(row, number) for number in range(10 * count, 10 * count + count)]
                store.run(REGION, lambda tx, put=put: tx.put(*put))  # type: ignore[misc]
                with store.read(REGION) as reader:
                    for each in put:
                        stored = reader.get(row, *(getattr(each, name) for name in own_key(row)))
                        assert stored == each, row
                        assert [type(v) for v in _values(stored)] == [type(v) for v in _values(each)], row

    def test_a_region_comes_back_equal(self, store: Store) -> None:
        wanted = replace(sample(Region, 5), name=REGION, version=HUGE - 1)
        assert store.create(wanted, lambda tx: tx.region()) == wanted
        assert store.regions() == [wanted]
        with store.read(REGION) as reader:
            stored = reader.region()
        assert stored == wanted
        assert [type(v) for v in _values(stored)] == [type(v) for v in _values(wanted)]

    def test_create_keeps_an_existing_region(self, store: Store) -> None:
        store.create(region(uid="first"), lambda tx: tx.set_region(epoch=7))
        again = store.create(region(uid="second"), lambda tx: tx.region())
        assert (again.uid, again.epoch) == ("first", 7)

    def test_regions_are_listed_by_name(self, store: Store) -> None:
        for name in ("b", "B", "a", "ä", "_"):
            store.create(region(name), lambda tx: None)
        assert [r.name for r in store.regions()] == ["B", "_", "a", "b", "ä"]

    def test_put_replaces_and_add_refuses(self, store: Store) -> None:
        row = sample(Launch, 1)
        store.create(region(), lambda tx: tx.add(row))
        store.run(REGION, lambda tx: tx.put(replace(row, number=5)))
        with raises(KeyExists):
            store.run(REGION, lambda tx: tx.add(replace(row, number=6)))
        with store.read(REGION) as reader:
            assert reader.select(Launch) == [replace(row, number=5)]

    def test_the_last_of_two_rows_with_one_key_stands(self, store: Store) -> None:
        row = sample(Launch, 1)
        store.create(region(), lambda tx: tx.put(row, sample(Launch, 2), replace(row, number=3)))
        with store.read(REGION) as reader:
            assert reader.get(Launch, row.name) == replace(row, number=3)

    def test_a_taken_key_adds_nothing_and_the_transaction_can_go_on(self, store: Store) -> None:
        existing, new = sample(Launch, 1), sample(Launch, 2)

        def work(tx: Tx) -> None:
            for rows in ((existing,), (new, existing), (new, new)):
                with raises(KeyExists):
                    tx.add(*rows)
            tx.add(sample(Launch, 3))

        store.create(region(), lambda tx: tx.put(existing))
        store.run(REGION, work)
        with store.read(REGION) as reader:
            assert {row.name for row in reader.select(Launch)} == {existing.name, sample(Launch, 3).name}

    def test_nothing_put_or_added_is_nothing(self, store: Store) -> None:
        def work(tx: Tx) -> None:
            tx.put()
            tx.add()

        store.create(region(), work)
        assert store.regions()[0].version == 0

    def test_conditions(self, store: Store) -> None:
        rows = [
            _checkpoint(number, CheckpointStatus.MERGED if number % 2 else CheckpointStatus.OPEN)
            for number in range(1, 11)
        ]
        store.create(region(), lambda tx: tx.put(*rows))
        cases: list[tuple[tuple[Cond, ...], list[int]]] = [
            ((), list(range(1, 11))),
            ((("id", "=", 4),), [4]),
            ((("id", "!=", 4),), [1, 2, 3, 5, 6, 7, 8, 9, 10]),
            ((("id", "<", 3),), [1, 2]),
            ((("id", "<=", 3),), [1, 2, 3]),
            ((("id", ">", 8),), [9, 10]),
            ((("id", ">=", 8),), [8, 9, 10]),
            ((("id", ">", 3), ("id", "<=", 6)), [4, 5, 6]),
            ((("status", "=", CheckpointStatus.OPEN), ("id", ">", 5)), [6, 8, 10]),
            ((("id", "in", [9, 2, 77]),), [2, 9]),
            ((("id", "in", []),), []),
            ((("status", "in", {CheckpointStatus.OPEN, CheckpointStatus.ABORTED}),), [2, 4, 6, 8, 10]),
            ((("region", "in", (REGION, "other")), ("cause", "in", ["cause 3", "cause' 4"])), [3]),
            ((("region", "=", "other"),), []),
            ((("merged_at", ">", 5.0), ("status", "!=", CheckpointStatus.OPEN)), [7, 9]),
        ]
        with store.read(REGION) as reader:
            for where, ids in cases:
                assert [c.id for c in reader.select(Checkpoint, *where)] == ids, where
                assert reader.count(Checkpoint, *where) == len(ids), where

    def test_a_boolean_is_a_condition(self, store: Store) -> None:
        rows = [replace(sample(Initial, n), forgotten=n == 2) for n in range(1, 4)]
        store.create(region(), lambda tx: tx.put(*rows))
        with store.read(REGION) as reader:
            assert reader.select(Initial, ("forgotten", "=", True)) == [rows[1]]
            assert reader.count(Initial, ("forgotten", "=", False)) == 2

    def test_order_and_limit(self, store: Store) -> None:
        rows = [replace(_checkpoint(n, CheckpointStatus.OPEN), parent=n % 3) for n in (5, 3, 9, 1, 7)]
        store.create(region(), lambda tx: tx.put(*rows))
        with store.read(REGION) as reader:

            def ids(**how: object) -> list[int]:
                return [c.id for c in reader.select(Checkpoint, **how)]  # type: ignore[arg-type]

            assert ids() == [1, 3, 5, 7, 9]
            assert ids(desc=True) == [9, 7, 5, 3, 1]
            assert ids(order=("id",), limit=2) == [1, 3]
            assert ids(order=("id",), desc=True, limit=2) == [9, 7]
            assert ids(order=("parent", "id")) == [3, 9, 1, 7, 5]
            assert ids(order=("parent",)) == [3, 9, 1, 7, 5], "the key settles ties"
            assert ids(order=("parent",), desc=True) == [5, 7, 1, 9, 3]
            assert ids(limit=0) == []

    def test_text_is_ordered_by_code_point(self, store: Store) -> None:
        names = ["b", "A", "a", "ä", "_", "B", "a b", "中", "a-b"]
        rows = [Launch(REGION, name, 1) for name in names]
        store.create(region(), lambda tx: tx.put(*rows))
        with store.read(REGION) as reader:
            assert [row.name for row in reader.select(Launch)] == sorted(names)
            assert [row.name for row in reader.select(Launch, ("name", ">", "a"))] == [
                n for n in sorted(names) if n > "a"
            ]

    def test_delete_counts_what_it_deleted(self, store: Store) -> None:
        store.create(region(), lambda tx: tx.put(*(_checkpoint(n, CheckpointStatus.OPEN) for n in range(1, 6))))
        assert store.run(REGION, lambda tx: tx.delete(Checkpoint, ("id", "<", 3))) == 2
        assert store.run(REGION, lambda tx: tx.delete(Checkpoint, ("id", "<", 3))) == 0
        assert store.run(REGION, lambda tx: tx.delete(Checkpoint, ("id", "in", [4, 5, 6]))) == 2
        with store.read(REGION) as reader:
            assert [c.id for c in reader.select(Checkpoint)] == [3]

    def test_ids_near_two_to_the_63(self, store: Store) -> None:
        ids = [1_001, 2**31, 2**31 + 1, 2**53 + 1, HUGE - 1, HUGE]
        parents = [0, *ids[:-1]]
        rows = [replace(_checkpoint(i, CheckpointStatus.MERGED), parent=p) for i, p in zip(ids, parents, strict=True)]
        store.create(region(filling=HUGE), lambda tx: tx.put(*rows))
        with store.read(REGION) as reader:
            assert [c.id for c in reader.select(Checkpoint, ("id", ">", 2**53))] == ids[3:]
            assert [c.id for c in reader.select(Checkpoint, ("id", "in", [HUGE, 2**53 + 1]))] == [2**53 + 1, HUGE]
            assert reader.line(HUGE) == ids
            assert reader.line(HUGE, after=2**53 + 1) == [HUGE - 1, HUGE]
            assert store.regions()[0].filling == HUGE

    def test_one_column_is_read_as_rows_are(self, store: Store) -> None:
        rows = [replace(_checkpoint(i, CheckpointStatus.MERGED), rows=i % 3, archive_json="{}") for i in range(1, 8)]
        store.create(region(), lambda tx: tx.put(*rows))
        with store.read(REGION) as reader:
            assert reader.column(Checkpoint, "id", ("rows", ">", 0)) == [1, 2, 4, 5, 7]
            assert reader.column(Checkpoint, "id", ("id", ">", 2), order=("id",), desc=True, limit=2) == [7, 6]
            assert reader.column(Checkpoint, "rows", ("id", "<", 4)) == [1, 2, 0]
            assert reader.column(Checkpoint, "id", ("id", ">", 99)) == []
            assert [c.id for c in reader.select(Checkpoint, ("rows", ">", 0))] == [1, 2, 4, 5, 7]

    def test_the_line_follows_parents_and_not_ids(self, store: Store) -> None:
        parents = {1: 0, 2: 1, 3: 2, 4: 3, 5: 2, 6: 5, 7: 0, 8: 7}
        rows = [replace(_checkpoint(i, CheckpointStatus.MERGED), parent=p) for i, p in parents.items()]
        other = [replace(row, region="other", parent=row.id - 1) for row in rows]
        store.create(region(), lambda tx: tx.put(*rows))
        store.create(region("other"), lambda tx: tx.put(*other))
        with store.read(REGION) as reader:
            assert reader.line(6) == [1, 2, 5, 6]
            assert reader.line(4) == [1, 2, 3, 4]
            assert reader.line(6, after=2) == [5, 6]
            assert reader.line(6, after=4) == [5, 6], "4 is not on the line: it ends below it"
            assert reader.line(6, after=6) == []
            assert reader.line(8) == [7, 8]
            assert reader.line(0) == []
            assert reader.line(99) == []
        with store.read("other") as reader:
            assert reader.line(6) == [1, 2, 3, 4, 5, 6]

    def test_ten_thousand_offsets_are_one_statement_each_way(self, store: Store) -> None:
        rows = offsets(1, 10_000)
        started = time.monotonic()
        store.create(region(), lambda tx: tx.add(*rows))
        with store.read(REGION) as reader:
            stored = reader.select(MergedOffset, ("checkpoint", "=", 1))
        store.run(REGION, lambda tx: tx.put(*rows))
        assert store.run(REGION, lambda tx: tx.delete(MergedOffset, ("checkpoint", "=", 1))) == 10_000
        took = time.monotonic() - started
        assert stored == sorted(rows, key=lambda row: (row.topic, row.partition))
        assert took < 5, f"{took:.1f} s"

    def test_a_long_list_is_one_condition(self, store: Store) -> None:
        store.create(region(), lambda tx: tx.put(*offsets(1, 100)))
        with store.read(REGION) as reader:
            wanted = list(range(-70_000, 70_000))
            assert reader.count(MergedOffset, ("from_offset", "in", wanted)) == 100

    def test_names_of_249_characters(self, store: Store) -> None:
        start = replace(sample(Start, 1), topic=TOPIC)
        store.create(region(), lambda tx: tx.put(start))
        with store.read(REGION) as reader:
            assert reader.select(Start, ("topic", "=", TOPIC)) == [start]
            assert reader.select(Start, ("topic", "=", TOPIC[:-1])) == []

    def test_rows_of_regions_do_not_mix(self, store: Store) -> None:
        """A reader and a transaction know one region: no question finds, and no deletion takes, what is another's."""
        for number, name in enumerate("ab"):
            store.create(region(name), lambda tx, name=name, n=number: tx.put(Launch(name, "m/0", n)))  # type: ignore[misc]
        for number, name in enumerate("ab"):
            with store.read(name) as reader:
                assert reader.region().name == name
                assert [r.name for r in reader.select(Region)] == [name]
                assert reader.get(Launch, "m/0") == Launch(name, "m/0", number)
                assert reader.select(Launch) == [Launch(name, "m/0", number)]
                assert reader.column(Launch, "number") == [number]
                assert reader.count(Launch) == 1
                assert reader.select(Launch, ("region", "!=", name)) == []
        assert store.run("a", lambda tx: tx.delete(Launch)) == 1
        assert store.run("a", lambda tx: tx.delete(Launch)) == 0
        with store.read("b") as reader:
            assert reader.select(Launch) == [Launch("b", "m/0", 1)]

    def test_groups_are_seen_from_every_region_and_deleted_by_their_own(self, store: Store) -> None:
        for name in "ab":
            store.create(region(name), lambda tx, name=name: tx.put(Group("cluster", f"group of {name}", name, 1)))  # type: ignore[misc]
        with store.read("a") as reader:
            assert [g.region for g in reader.select(Group)] == ["a", "b"]
            assert reader.get(Group, "cluster", "group of b") == Group("cluster", "group of b", "b", 1)
        assert store.run("a", lambda tx: tx.delete(Group)) == 1
        with store.read("a") as reader:
            assert [g.region for g in reader.select(Group)] == ["b"]

    def test_a_missing_region_has_no_row(self, store: Store) -> None:
        with store.read("nobody") as reader:
            assert reader.get(Region) is None
            with raises(NoSuchRegion):
                reader.region()

    def test_events_since_and_last(self, store: Store) -> None:
        rows = [Event(REGION, seq, 1.5, "kind", 1) for seq in range(1, 31)]
        store.create(region(), lambda tx: tx.add(*rows))
        with store.read(REGION) as reader:
            assert [e.seq for e in reader.select(Event, ("seq", ">", 27), order=("seq",))] == [28, 29, 30]
            assert [e.seq for e in reader.select(Event, order=("seq",), desc=True, limit=2)] == [30, 29]

    def test_an_unknown_column_or_key_is_an_error(self, store: Store) -> None:
        store.create(region(), lambda tx: None)
        with store.read(REGION) as reader:
            with raises(AttributeError, KeyError):
                reader.select(Member, ("nonsense", "=", 1))
            with raises(TypeError):
                reader.get(Member)
        with raises(TypeError):
            store.run(REGION, lambda tx: tx.set_region(nonsense=1))
        with raises(TypeError):
            store.run(REGION, lambda tx: tx.put(sample(Launch, 1), sample(Member, 1)))

    def test_members_change_their_status(self, store: Store) -> None:
        member = replace(sample(Member, 1), status=MemberStatus.LIVE)
        store.create(region(), lambda tx: tx.put(member))
        store.run(REGION, lambda tx: tx.put(replace(member, status=MemberStatus.LOST)))
        with store.read(REGION) as reader:
            stored = reader.select(Member, ("status", "!=", MemberStatus.LIVE))
        assert [m.status for m in stored] == [MemberStatus.LOST]
        assert stored[0].status is MemberStatus.LOST


def _values(row: object) -> list[object]:
    return [getattr(row, name) for name in row.__dataclass_fields__]  # type: ignore[attr-defined]


def _checkpoint(number: int, status: CheckpointStatus) -> Checkpoint:
    return Checkpoint(
        region=REGION,
        id=number,
        parent=number - 1,
        epoch=1,
        status=status,
        cause=f"cause {number}",
        merged_at=float(number),
    )
