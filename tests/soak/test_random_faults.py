"""Random faults on real processes, a real Kafka of three nodes and both databases, with the oracle after each of them.

Half a minute of it is in `make test`. Half an hour, and more:

    SOAK_MINUTES=30 CRKAFKA_SOAK_SEED=7 .venv/bin/python -m pytest tests/soak/test_random_faults.py -m soak -k sqlite

and `-k postgres`, `-k kip848`. A report of each is in `artifacts/soak-*.md`.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest
from deltalake import DeltaTable

from crkafka_core.lake import road
from crkafka_core.model.errors import LeaseHeld
from crkafka_core.testing.pytest_services import unique
from crkafka_core.verify.verdict import Verdict
from tests.rigs.proxy import kafka_behind_proxy
from tests.rigs.pytest_scenarios import Lasting
from tests.rigs.scenario import Scenario
from tests.soak.account import Account
from tests.soak.conftest import SECONDS, SEED
from tests.soak.nemesis import MEMBERS, TABLE, Nemesis
from tests.soak.processes import Database, Hosted, Pair, PostgresAway, SqliteLocked, driver, host
from tests.soak.test_growth import MORE_MEMORY, Size

pytestmark = pytest.mark.kafka
SHORT = 30.0
"""Seconds of faults in `make test`: always the same ones, in the same order."""
BACKLOG = 160.0
"""Mebibytes more after a backlog was read: the client's queue (32), what the allocator keeps (64), open segments."""
SETTLES = 120.0
"""Seconds within which a checkpoint is merged once the fault is over (I10)."""


@pytest.fixture
def nemesis(
    request: pytest.FixtureRequest, services_folder: Path, tmp_path: Path, lasting: Lasting
) -> Iterator[Nemesis]:
    database, seed, *protocol = request.param
    lasting.drop()
    server = request.getfixturevalue("postgres") if database == "postgres" else None
    prefix = unique("shop").replace("-", "")
    with kafka_behind_proxy(services_folder / f"behind-{database}", nodes=3) as (kafka, proxy, address):
        topic = kafka.topics.create(f"{prefix}.a", 6, replication=3)
        s = Hosted(
            kafka,
            tmp_path,
            members=MEMBERS,
            partitions=6,
            names=[topic],
            pattern=f"^{prefix}\\..*",
            session=8.0,
            rate=0,
            producer_timeout=180.0,
            trigger={"period": 2.0},
            retain=50,
            static_membership=bool(seed % 2),
            forced_budget=1_000,
            forced_without_cut=100,
            url=server.url(f"soak_{seed}") if server else "",
            kafka={"bootstrap.servers": address, **dict(protocol)},
            tables=[{"name": TABLE, "format": "delta", "path": str(tmp_path / TABLE)}],
            begin=False,
        )
        away: Database = PostgresAway(server) if server else SqliteLocked(s.url)
        with s:
            hosts, drivers = Pair(s, "host", host), Pair(s, "driver", driver)
            try:
                yield Nemesis(s, hosts, drivers, away, proxy, random.Random(seed))
            finally:
                drivers.end()
                hosts.end()


@pytest.mark.timeout(SHORT + 480)
@pytest.mark.parametrize("nemesis", [("sqlite", 3)], ids=["sqlite"], indirect=True)
def test_random_faults_for_half_a_minute_break_no_invariant(
    nemesis: Nemesis, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _strike(nemesis, SHORT, capsys, Account("sqlite", 3, SHORT))


@pytest.mark.soak
@pytest.mark.timeout(2 * SECONDS + 600)
@pytest.mark.parametrize(
    "nemesis",
    [("sqlite", SEED), ("postgres", SEED), ("sqlite", SEED, ("group.protocol", "consumer"))],
    ids=["sqlite", "postgres", "kip848"],
    indirect=True,
)
def test_random_faults_for_a_while_break_no_invariant(
    nemesis: Nemesis, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the end memory has stayed, too."""
    sizes = _strike(nemesis, SECONDS, capsys, Account(request.node.callspec.id, SEED, SECONDS))
    assert len(sizes) >= SECONDS / 120
    part = len(sizes) // 3  # of the largest member: those that were killed began anew, small
    assert part == 0 or median(sizes[-part:]) <= median(sizes[:part]) + MORE_MEMORY, sizes
    assert max(sizes) <= median(sizes) + BACKLOG, sizes


def _strike(nemesis: Nemesis, seconds: float, capsys: pytest.CaptureFixture[str], account: Account) -> list[float]:
    """One fault or two at once; after each a checkpoint (I10) and every invariant; in the end all has landed. The largest sizes."""
    s, rng = nemesis.s, nemesis.rng
    sizes: list[float] = []
    nemesis.produce()
    table = str(s.folder / TABLE)
    s.until(lambda: DeltaTable.is_deltatable(table), "the table is made: some faults strike it", timeout=SETTLES)
    end = time.monotonic() + seconds
    faults = nemesis.faults()
    while time.monotonic() < end:
        names = rng.sample(sorted(faults), rng.choice((1, 1, 2)))
        for name in names:
            _say(capsys, f"seed {account.seed}, {end - time.monotonic():.0f} s left: {name}")
            faults[name]()
        began = time.monotonic()
        _recovers(s)
        account.over(names, time.monotonic() - began)
        verdict = s.verify()
        pids = s.until(s.pids, "members tell their process ids")
        sizes.append(max(Size.of(pid).mib for pid in pids.values()))
        took = time.monotonic() - began
        _say(
            capsys,
            f"  verified in {took:.1f} s: head {verdict.head}, {verdict.rows} rows, {sizes[-1]:.0f} MiB{_uncompared(verdict)}",
        )
    nemesis.drivers.end()
    s.finish_and_verify()
    _bring_in_the_rest(s)
    verdict = s.verify(quiet=True)
    assert verdict.tables == (TABLE,), verdict.notes
    assert DeltaTable(table).to_pyarrow_table(columns=["offset"]).num_rows == s.ledger.rows()
    _say(capsys, f"{account.write(s, verdict.rows)}\n{verdict}")
    return sizes


def _bring_in_the_rest(s: Scenario) -> None:
    """A driver that was killed while it wrote keeps the table's lease until it runs out."""

    def brought_in() -> bool:
        try:
            return road.advance(s.region, TABLE) is None
        except LeaseHeld:
            return False

    s.until(brought_in, "the table has all that is merged", timeout=SETTLES)


def _uncompared(verdict: Verdict) -> str:
    return "" if verdict.tables else f"; {'; '.join(verdict.notes)}"


def _recovers(s: Scenario) -> None:
    """A checkpoint that was opened after the fault is merged, by whichever driver, and all members are there again."""
    s.points.clear_all()
    s.wake()
    try:
        s.settle(timeout=SETTLES)
        s.wait_head(s.region.plane.read(lambda _, row: row.filling), timeout=SETTLES)
    except Exception as error:
        error.add_note(f"Kafka, as it is now: {s.kafka.topics.state()}")
        raise


def _say(capsys: pytest.CaptureFixture[str], words: str) -> None:
    """What goes on is seen at once; half an hour of silence would tell nothing."""
    with capsys.disabled(), contextlib.suppress(BrokenPipeError):
        print(words, flush=True)
