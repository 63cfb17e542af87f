"""A database that is busy, restarted, cut off or frozen: nothing lost, nothing twice, no secret told."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from checkpoints_db import SqlStore, initialise, open_store
from checkpoints_db.retry import Patience
from checkpoints_db.testing.samples import REGION, region
from crkafka_core.control import Tx
from crkafka_core.dev.postgres import Postgres
from crkafka_core.model.errors import SchemaError, ServiceUnavailable
from crkafka_core.model.rows import Event, Launch, Region


class Crash(BaseException):
    """The process ends here, as far as the control plane can see."""


def _once(token: str) -> Callable[[Tx], int]:
    """A mutation as all are: it finds its own earlier effect."""

    def work(tx: Tx) -> int:
        mine = tx.select(Event, ("text", "=", token))
        if mine:
            return mine[0].seq
        seq = tx.region().next_event
        tx.add(Event(REGION, seq, tx.now(), "did", 1, text=token))
        tx.put(Launch(REGION, token, seq))
        tx.set_region(next_event=seq + 1)
        return seq

    return work


@pytest.fixture
def store(new_url: str) -> Iterator[SqlStore]:
    store = open_store(new_url)
    store.create(region(), lambda tx: None)
    yield store
    store.close()


def _texts(store: SqlStore) -> list[str]:
    with store.read(REGION) as reader:
        assert reader.count(Launch) == reader.count(Event)
        return [e.text for e in reader.select(Event)]


def test_a_connection_that_dies_at_each_statement_is_cured_by_the_store(store: SqlStore, new_url: str) -> None:
    """The hook closes the connection beneath; the store starts over, and finds what it had committed."""
    steps = _statements_of_one_run(new_url)
    for step in range(1, steps + 1):
        left = [step]
        cut = open_store(new_url)
        used: list[Any] = []

        def kill(statement: str, left: list[int] = left, used: list[Any] = used) -> None:
            if statement not in ("begin", "commit", "committed"):
                left[0] -= 1
                if left[0] == 0:
                    used[-1].close()

        event.listen(cut.engine, "checkout", lambda connection, *_, used=used: used.append(connection))
        cut.on_statement = kill
        assert cut.run(REGION, _once(f"cut {step}"))
        assert left[0] <= 0, "it was cut"
        cut.close()
        assert _texts(store).count(f"cut {step}") == 1


def test_an_unknown_outcome_of_the_commit_is_read_again(store: SqlStore, new_url: str) -> None:
    """The commit arrives, its answer does not."""
    doubtful = open_store(new_url)
    answers = [True]

    def lose_the_answer(connection: object) -> None:
        if answers.pop() if answers else False:
            connection.connection.dbapi_connection.commit()  # type: ignore[attr-defined]
            connection.connection.dbapi_connection.close()  # type: ignore[attr-defined]

    event.listen(doubtful.engine, "commit", lose_the_answer)
    seq = doubtful.run(REGION, _once("doubt"))
    assert _texts(store) == ["doubt"]
    assert seq == 1
    assert not answers
    doubtful.close()


def _statements_of_one_run(url: str) -> int:
    seen: list[str] = []
    counting = open_store(url)
    counting.on_statement = seen.append
    counting.run(REGION, _once("count"))
    counting.close()
    return len([s for s in seen if s not in ("begin", "commit", "committed")])


# --- SQLite ---


@pytest.fixture
def file(tmp_path: Path) -> Path:
    initialise(f"sqlite:///{tmp_path}/busy.db")
    return tmp_path / "busy.db"


def test_a_file_that_is_busy_for_a_moment_is_waited_for(file: Path) -> None:
    store = open_store(f"sqlite:///{file}")
    store.create(region(), lambda tx: None)
    started = time.monotonic()
    with _locked(file, 1.5):
        store.run(REGION, lambda tx: tx.set_region(epoch=2))
        assert time.monotonic() - started > 1
    store.close()


def test_a_file_that_stays_busy_is_told_within_the_bound(file: Path) -> None:
    store = open_store(f"sqlite:///{file}", patience=Patience(bound=0.5))
    store.create(region(), lambda tx: None)
    with _locked(file, 4):
        started = time.monotonic()
        with pytest.raises(ServiceUnavailable, match="is held by another process"):
            store.run(REGION, lambda tx: tx.set_region(epoch=2))
        assert 0.4 < time.monotonic() - started < 3.5
        with store.read(REGION) as reader:
            assert reader.count(Event) == 0, "readers are not held up"
    store.close()


def test_a_file_that_was_put_in_its_place_is_the_one_that_is_used(file: Path, tmp_path: Path) -> None:
    """A backup, restored while Dagster's code server runs: what has the old file open reads and writes that."""
    store = open_store(f"sqlite:///{file}", patience=Patience(bound=0.2))
    store.create(region(), lambda tx: None)
    with (
        contextlib.closing(sqlite3.connect(file)) as source,
        contextlib.closing(sqlite3.connect(tmp_path / "b.db")) as to,
    ):
        source.backup(to)
    store.run(REGION, lambda tx: tx.set_region(epoch=7))
    assert store.wait(REGION, -1, 0.1) == 1
    for each in (file, Path(f"{file}-wal"), Path(f"{file}-shm")):
        each.unlink()
    for ask in (store.regions, lambda: store.wait(REGION, -1, 0.1), lambda: store.run(REGION, lambda tx: None)):
        with pytest.raises(ServiceUnavailable, match="unable to open"):
            ask()
    (tmp_path / "b.db").rename(file)
    assert store.wait(REGION, -1, 0.1) == 0
    assert [row.epoch for row in store.regions()] == [1]
    store.run(REGION, lambda tx: tx.set_region(epoch=2))
    other = open_store(f"sqlite:///{file}")
    assert [row.epoch for row in other.regions()] == [2]
    other.close()
    store.close()


class _locked:
    """Another process's write lock on the file, for some seconds."""

    def __init__(self, file: Path, seconds: float) -> None:
        self._file, self._seconds = file, seconds

    def __enter__(self) -> None:
        taken = threading.Event()

        def hold() -> None:
            connection = sqlite3.connect(self._file, isolation_level=None)
            connection.execute("BEGIN IMMEDIATE")
            taken.set()
            self._free.wait(self._seconds)
            connection.execute("ROLLBACK")
            connection.close()

        self._free = threading.Event()
        self._thread = threading.Thread(target=hold)
        self._thread.start()
        taken.wait(5)

    def __exit__(self, *_: object) -> None:
        self._free.set()
        self._thread.join()


# --- PostgreSQL ---


@pytest.fixture
def on_postgres(new_postgresql_url: str) -> Iterator[SqlStore]:
    store = open_store(new_postgresql_url, patience=Patience(bound=30))
    store.create(region(), lambda tx: None)
    yield store
    store.close()


@pytest.mark.postgres
def test_a_restart_of_the_server_is_survived(postgres: Postgres, on_postgres: SqlStore) -> None:
    """Writers and a waiter go on by themselves; every mutation has happened exactly once."""
    stop, errors = threading.Event(), list[BaseException]()
    done: list[str] = []

    def write() -> None:
        try:
            while not stop.is_set():
                token = f"write {len(done)}"
                on_postgres.run(REGION, _once(token))
                done.append(token)
        except BaseException as error:
            errors.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    time.sleep(0.3)
    postgres.restart()
    time.sleep(0.3)
    postgres.kill()
    postgres.start()
    after = len(done)
    deadline = time.monotonic() + 20
    while len(done) < after + 20 and time.monotonic() < deadline and not errors:
        time.sleep(0.05)
    stop.set()
    writer.join(30)
    assert not errors, errors
    assert len(done) >= after + 20
    assert _texts(on_postgres) == done


@pytest.mark.postgres
def test_a_session_that_may_only_read_is_left_for_a_new_one(postgres: Postgres, new_postgresql_url: str) -> None:
    """It stays so: at a server that is a replica since a failover, or begun while an administrator let nobody write."""
    store = open_store(new_postgresql_url, patience=Patience(bound=0.5))
    store.create(region(), lambda tx: None)
    store.close()
    database = store.address.url.database
    postgres.sql(f'ALTER DATABASE "{database}" SET default_transaction_read_only = on')
    with pytest.raises(ServiceUnavailable, match="takes no writes now"):
        store.run(REGION, lambda tx: tx.set_region(epoch=2))
    postgres.sql(f'ALTER DATABASE "{database}" SET default_transaction_read_only = off')
    assert store.run(REGION, lambda tx: tx.set_region(epoch=2)).epoch == 2
    store.close()


@pytest.mark.postgres
def test_a_session_that_found_no_tables_does_not_miss_those_that_come(postgres: Postgres, postgres_url: str) -> None:
    """A dump is restored into a new database, while a host goes on asking."""
    initialise(postgres_url)
    store = open_store(postgres_url, patience=Patience(bound=0.5))
    database = str(store.address.url.database)
    postgres.sql("DROP SCHEMA crkafka CASCADE", database=database)
    postgres.cut_connections(database)
    with pytest.raises(SchemaError, match="region"):
        store.regions()
    initialise(postgres_url)
    assert store.regions() == []
    store.create(region(), lambda tx: None)
    store.close()


@pytest.mark.postgres
def test_of_several_servers_the_one_that_answers_is_waited_at_too(postgres: Postgres, on_postgres: SqlStore) -> None:
    """As SQLAlchemy writes them, `host=` once for each."""
    url = on_postgres.address.url.render_as_string(hide_password=False)
    servers = f"host=/nowhere:5432&host={postgres.socket}:5432&target_session_attrs=read-write"
    store = open_store(f"{url.partition('?')[0]}?{servers}")
    assert store.wait(REGION, -1, 5) == 0
    store.close()


@pytest.mark.postgres
def test_a_waiter_hears_again_after_a_restart(postgres: Postgres, on_postgres: SqlStore) -> None:
    assert on_postgres.wait(REGION, 0, 0.2) == 0
    postgres.stop()
    with pytest.raises(ServiceUnavailable):
        for _ in range(100):
            on_postgres.wait(REGION, 0, 0.1)
    postgres.start()
    deadline = time.monotonic() + 20
    while True:
        try:
            if on_postgres.wait(REGION, 0, 0.5) == 0:
                break
        except ServiceUnavailable:
            assert time.monotonic() < deadline
    time.sleep(2.5)
    took, committed = list[float](), list[float]()

    def commit() -> None:
        on_postgres.run(REGION, lambda tx: tx.set_region(epoch=tx.region().epoch + 1))
        committed.append(time.monotonic())

    for _ in range(5):
        before = on_postgres.regions()[0].version
        thread = threading.Timer(0.1, commit)
        thread.start()
        while on_postgres.wait(REGION, before, 5) == before:
            pass
        heard = time.monotonic()
        thread.join()
        took.append(heard - committed[-1])
    assert sorted(took)[2] < 0.1, took


@pytest.mark.postgres
def test_connections_cut_again_and_again(postgres: Postgres, on_postgres: SqlStore) -> None:
    """Whatever statement or commit is in flight: each mutation happens once, and no error reaches the caller."""
    stop, cuts = threading.Event(), [0]
    database = str(on_postgres.address.url.database)

    def cut() -> None:
        while not stop.wait(0.03):
            cuts[0] += postgres.cut_connections(database)

    thread = threading.Thread(target=cut)
    thread.start()
    try:
        tokens = []
        deadline = time.monotonic() + 60
        while len(tokens) < 150 or cuts[0] <= 3:  # a fast machine is done with 150 before the fourth
            assert time.monotonic() < deadline, f"{cuts[0]} cuts, {len(tokens)} mutations"
            tokens.append(f"t{len(tokens)}")
            on_postgres.run(REGION, _once(tokens[-1]))
    finally:
        stop.set()
        thread.join()
    assert _texts(on_postgres) == tokens


@pytest.mark.postgres
def test_a_reader_whose_connection_dies_after_its_answer_keeps_it(postgres: Postgres, on_postgres: SqlStore) -> None:
    """Giving the connection back is no part of the question; it killed the thread of a host."""
    database = str(on_postgres.address.url.database)
    for _ in range(3):
        with on_postgres.read(REGION) as reader:
            found = reader.select(Region)
            postgres.cut_connections(database)
        assert [row.name for row in found] == [REGION]
    with pytest.raises(ServiceUnavailable), on_postgres.read(REGION) as reader:
        reader.select(Region)
        postgres.cut_connections(database)
        reader.select(Region)
    assert [row.name for row in on_postgres.regions()] == [REGION]


@pytest.mark.postgres
def test_a_frozen_holder_of_the_lock_does_not_hold_up_the_region(
    on_postgres: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that stops inside a transaction is cut off by the server."""
    frozen = open_store(on_postgres.address.url.render_as_string(hide_password=False))
    inside, go_on = threading.Event(), threading.Event()
    seen: list[object] = []

    def freeze(tx: Tx) -> int:
        seen.append(tx.region().epoch)
        if len(seen) == 1:
            tx._connection.exec_driver_sql("SET idle_in_transaction_session_timeout = '500ms'")  # type: ignore[attr-defined]
            inside.set()
            go_on.wait(20)
        return tx.set_region(epoch=tx.region().epoch + 10).epoch

    thread = threading.Thread(target=lambda: seen.append(frozen.run(REGION, freeze)))
    thread.start()
    inside.wait(10)
    started = time.monotonic()
    on_postgres.run(REGION, lambda tx: tx.set_region(epoch=2))
    assert time.monotonic() - started < 5
    go_on.set()
    thread.join(20)
    assert seen == [1, 2, 12], "it started over, and saw what had happened meanwhile"
    frozen.close()


@pytest.mark.postgres
def test_91_who_waited_for_the_lock_sees_what_was_committed_meanwhile_whatever_the_database_prefers(
    postgres: Postgres, new_postgresql_url: str
) -> None:
    """SPEC G7. With REPEATABLE READ it saw what there was when it began to wait: the other had not changed the region's own row.

    A connection on which a snapshot was read goes back to the pool: from there it must come as new ones do.
    """
    database = new_postgresql_url.partition("?")[0].rpartition("/")[2]
    postgres.sql(f"ALTER DATABASE \"{database}\" SET default_transaction_isolation = 'repeatable read'")
    store, counted, began = open_store(new_postgresql_url), list[int](), threading.Event()
    store.create(region(), lambda tx: None)
    with store.read(REGION) as one, store.read(REGION) as other:
        assert one.region() == other.region()
    second = threading.Thread(target=lambda: counted.append(store.run(REGION, lambda tx: tx.count(Launch))))

    def first(tx: Tx) -> None:
        tx.put(Launch(REGION, "m", 1))
        store.on_statement = lambda what: began.set() if "FOR UPDATE" in what else None
        second.start()
        assert began.wait(10)
        time.sleep(0.5)
        assert not counted, "it waits"

    store.run(REGION, first)
    second.join(20)
    assert counted == [1]
    store.close()


@pytest.mark.postgres
def test_a_lock_that_does_not_come_is_told_as_that(new_postgresql_url: str) -> None:
    """It said that the database does not answer, while a dump of it was made."""
    store = open_store(new_postgresql_url, patience=Patience(bound=0.5))
    store.create(region(), lambda tx: None)
    with store.engine.begin() as dump:
        dump.exec_driver_sql("LOCK TABLE region")
        with pytest.raises(
            ServiceUnavailable, match="is locked by another session: canceling statement due to lock timeout"
        ):
            store.run(REGION, lambda tx: None)
    store.close()


@pytest.mark.postgres
def test_a_deadlock_is_cured(on_postgres: SqlStore) -> None:
    """Two regions that write one row of a third kind in opposite order: PostgreSQL ends one, the store runs it again."""
    other = replace(region("other"))
    on_postgres.create(other, lambda tx: None)
    with on_postgres.engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE pair (id int PRIMARY KEY, n int)")
        connection.exec_driver_sql("INSERT INTO pair VALUES (1, 0), (2, 0)")
    errors: list[BaseException] = []
    barrier = threading.Barrier(2)

    def work(order: tuple[int, int]) -> object:
        def both(tx: Tx) -> None:
            for number, which in enumerate(order):
                tx._connection.exec_driver_sql(f"UPDATE pair SET n = n + 1 WHERE id = {which}")  # type: ignore[attr-defined]
                if number == 0 and not barrier.broken:
                    with contextlib.suppress(threading.BrokenBarrierError):
                        barrier.wait(3)
            tx.set_region(epoch=tx.region().epoch + 1)

        return both

    def run(name: str, order: tuple[int, int]) -> None:
        try:
            on_postgres.run(name, work(order))  # type: ignore[arg-type]
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=a) for a in ((REGION, (1, 2)), ("other", (2, 1)))]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    barrier.abort()
    for thread in threads:
        thread.join(30)
    assert not errors, errors
    assert [r.epoch for r in on_postgres.regions()] == [2, 2]
    with on_postgres.engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT n FROM pair ORDER BY id").fetchall() == [(2,), (2,)]
