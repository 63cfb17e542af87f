"""The command line drives a whole region on a real Kafka, from `init` to `delete`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from deltalake import DeltaTable

from crkafka_core.cli import checks
from crkafka_core.config import RegionConfig
from crkafka_core.dev.kafka import KafkaCluster
from crkafka_core.kafka.admin import KafkaAdmin
from crkafka_core.member.exit_codes import REFUSED
from crkafka_core.member.main import run_member
from crkafka_core.model.errors import ConfigError
from crkafka_core.model.rows import Group, Member, Region
from crkafka_core.plane import life, transact
from crkafka_core.plane.transact import ControlPlane
from crkafka_core.protocol.commit_metadata import CommitMetadata
from crkafka_core.region.availability import lacks_topics
from crkafka_core.testing.generator import Generator
from tests.cli.conftest import Answer, Crkafka

pytestmark = pytest.mark.kafka


@pytest.fixture
def topic(new_topic: Callable[..., str]) -> str:
    return new_topic(partitions=4)


@pytest.fixture
def region_on_kafka(kafka: KafkaCluster, topic: str, region_file: Path) -> Path:
    region_file.write_text(
        f"""
region: orders
control_plane: sqlite:///var/crkafka.db
storage: var/segments
kafka: {{bootstrap.servers: "{kafka.bootstrap}", group.id: "cli {topic}", session.timeout.ms: 6000}}
topics: [{topic}]
members: 2
start_grace: 5s
trigger: {{manual: true}}
tables:
  - {{name: bronze, format: delta, path: var/bronze}}
"""
    )
    return region_file


@contextmanager
def hosting(folder: Path) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    output = (folder / "host.out").open("w")
    process = subprocess.Popen(
        [sys.executable, "-m", "crkafka_core.cli.main", "host", "--logs", "logs"],
        cwd=folder,
        env=environment,
        stdout=output,
        stderr=output,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
        output.close()


def until(ask: Callable[[], Answer], good: Callable[[Answer], bool], seconds: float = 40.0) -> Answer:
    end = time.monotonic() + seconds
    while not good(answer := ask()):
        assert time.monotonic() < end, f"not within {seconds} s: {answer}"
        time.sleep(0.3)
    return answer


def rows_in(table: Path) -> int:
    """The records as a plain reader of the table reads them; each once."""
    found = DeltaTable(str(table)).to_pyarrow_table(columns=["topic", "partition", "offset"])
    assert len(set(zip(*(column.to_pylist() for column in found.columns), strict=True))) == found.num_rows
    return int(found.num_rows)


def running(answer: Answer) -> bool:
    return answer.code == 0 and answer.json["region"]["phase"] == "RUNNING"


@pytest.mark.timeout(180)
def test_a_whole_life(crkafka: Crkafka, kafka: KafkaCluster, topic: str, region_on_kafka: Path) -> None:
    generator = Generator(kafka.bootstrap)
    generator.send(topic, 400, partitions=4)
    assert crkafka("init").code == 0
    assert crkafka("check").code == 0
    assert crkafka("cut").code == 1, "an idle region cannot be cut"
    with hosting(region_on_kafka.parent) as host:
        until(lambda: crkafka("show", "--json"), running)
        until(
            lambda: crkafka("cut", "--json"), lambda a: a.code == 0 and crkafka("verify", "--json").json["rows"] == 400
        )
        head = crkafka("show", "--json").json["region"]["head"]

        crkafka("pause", f"{topic}[1]")
        assert crkafka("cut").code == 0, "who contributes to it has read the mark"
        generator.send(topic, 400, partitions=4)
        until(lambda: crkafka("cut", "--json"), lambda _: crkafka("verify", "--json").json["rows"] >= 700)
        assert crkafka("cut").code == 0
        assert crkafka("verify", "--json").json["rows"] == 700, "one of four partitions is paused"
        assert crkafka("resume", f"{topic}[1]").code == 0

        scaled = crkafka("scale", "3", "--wait", "--timeout", "40", "--json")
        assert scaled.code == 0, scaled.err
        assert len([m for m in crkafka("show", "--json").json["members"] if m["status"] == "LIVE"]) == 3
        group = crkafka("group", "--json").json
        assert (group["state"], len(group["members"])) == ("Stable", 3)
        assert {p["holder"] for p in group["partitions"]} == {"orders/0", "orders/1", "orders/2"}

        refused = crkafka("reset", "--to", str(head))
        assert (refused.code, "--yes" in refused.err) == (2, True)
        assert crkafka("reset", "--to", "999", "--yes").code == 1
        assert crkafka("reset", "--to", str(head), "--yes", "--timeout", "40").code == 0
        statuses = {c["id"]: c["status"] for c in crkafka("checkpoints", "--json").json}
        assert statuses[head] == "MERGED"
        # A handover at the scaling may have had nothing new.
        assert {status for id, status in statuses.items() if id > head} - {"EMPTY"} == {"SUPERSEDED"}
        assert rows_in(region_on_kafka.parent / "var" / "bronze") == 400, "the fence is made, without Spark"
        assert crkafka("delete", "--yes").code == 1, "a running region is not deleted"
        assert crkafka("consume", "--json").code == 0
        assert running(crkafka("show", "--json")), "a bounded run does not stop a region that is hosted elsewhere"

        stopped = crkafka("stop", "--json")
        assert stopped.json["phase"] == "IDLE", stopped
        host.send_signal(signal.SIGINT)
        assert host.wait(30) == 0
    generator.send(topic, 100, partitions=4)
    consumed = crkafka("consume", "--json", "--logs", "logs")
    assert consumed.code == 0, consumed.err
    ledger = region_on_kafka.parent / "ledger.arrow"
    generator.ledger.save(ledger)
    verdict = crkafka("verify", "--json", "--ledger", str(ledger))
    assert verdict.code == 0, verdict.out
    assert (verdict.json["rows"], verdict.json["truth"], verdict.json["partitions"]) == (900, "ledger", 4)
    assert crkafka("verify", "--json", "--quiet").json["truth"] == "kafka"

    assert crkafka("tables", "--json").json[0]["waiting"] == 0
    assert rows_in(region_on_kafka.parent / "var" / "bronze") == 900

    segment = next((region_on_kafka.parent / "var" / "segments").rglob("*.parquet"))
    segment.unlink()
    broken = crkafka("verify")
    assert broken.code == 1
    assert segment.name in broken.out
    assert crkafka("retire").code == 0
    assert crkafka("delete", "--yes").code == 0
    assert rows_in(region_on_kafka.parent / "var" / "bronze") == 900, "a table outlives its region"
    assert not list((region_on_kafka.parent / "var" / "segments").rglob("*.parquet"))
    assert crkafka("show").code == 1


@pytest.mark.parametrize("mistake", ["the group of another region", "another group.id than before"])
def test_a_host_whose_members_may_not_start_says_why_once_and_ends(
    crkafka: Crkafka, kafka: KafkaCluster, region_on_kafka: Path, mistake: str
) -> None:
    config = RegionConfig.load(region_on_kafka)
    assert crkafka("init").code == 0
    cluster = KafkaAdmin({"bootstrap.servers": kafka.bootstrap}).cluster_id()
    store = transact.open_store(config.resolved_control_plane())
    if mistake.startswith("the group"):
        life.declare(store, Region(name="sales", uid="u2", region_index=0, members_wanted=1))
        ControlPlane(store, "sales").do(lambda tx: tx.put(Group(cluster, config.group_id, "sales", 0)))
        said = rf"[Gg]roup '?{config.group_id}'?.* belongs to region sales"
    else:
        ControlPlane(store, "orders").do(lambda tx: tx.set_region(cluster_id=cluster, group_id="before"))
        said = r"group '?before'?"
    with hosting(region_on_kafka.parent) as host:
        code = host.wait(60)
    text = (region_on_kafka.parent / "host.out").read_text()
    assert code == 1, text
    assert len(re.findall(said, text)) == 1, text
    assert "Traceback" not in text and len(text.splitlines()) <= 4, text


def test_73_check_finds_a_topic_with_records_that_the_client_does_not_take(
    kafka: KafkaCluster, region_on_kafka: Path
) -> None:
    """SPEC X9: such a record would block its partition for good."""
    config = RegionConfig.load(region_on_kafka)
    large = kafka.topics.create("large", 1, config={"max.message.bytes": "150000000"})
    config = config.model_copy(update={"topics": (large,)})
    with pytest.raises(ConfigError, match=r"150000000 bytes.*receive\.message\.max\.bytes` to 150000512"):
        checks.kafka(config, checks.Stored())
    roomy = config.model_copy(update={"kafka": {**config.kafka, "receive.message.max.bytes": "150000512"}})
    assert "1 topic " in checks.kafka(roomy, checks.Stored())


def test_a_misspelled_topic_is_told_by_check_and_by_the_host(
    crkafka: Crkafka, topic: str, region_on_kafka: Path
) -> None:
    """The host reported a member without a report, and proposed to forget the topic."""
    assert lacks_topics(RegionConfig.load(region_on_kafka)) == ""
    region_on_kafka.write_text(region_on_kafka.read_text().replace(f"topics: [{topic}]", f"topics: [{topic}x]"))
    said = f'Kafka has no topic {topic}x. Did you mean "{topic}"? Create it, or mend topics.'
    assert said in crkafka("check").out
    assert lacks_topics(RegionConfig.load(region_on_kafka)) == said


def _commit(kafka: KafkaCluster, group: str, topic: str, metadata: str) -> None:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 1, 7, metadata=metadata)], asynchronous=False)
    consumer.close()


@pytest.mark.parametrize("trace", ["commits", "members"])
def test_95_a_group_that_a_region_of_another_control_plane_uses_is_refused_before_anything_is_committed(
    crkafka: Crkafka, kafka: KafkaCluster, topic: str, region_on_kafka: Path, trace: str
) -> None:
    """SPEC G1. Our SQL does not know the other region; Kafka does, by its commits, or by its members before the first."""
    config, metadata = RegionConfig.load(region_on_kafka), CommitMetadata("their-uid", 3, 7).text()
    assert crkafka("init").code == 0, "nothing is there yet"
    theirs = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": config.group_id,
            "client.id": "crkafka-5fd2b1c0-orders/0-5fd2b1c0ffee",  # a region of our name
            "enable.auto.commit": "false",
        }
    )
    if trace == "commits":
        _commit(kafka, config.group_id, topic, metadata)
        said = f"Group {config.group_id!r} belongs to another region, with uid their-uid"
    else:
        theirs.subscribe([topic])
        while not theirs.assignment():
            theirs.poll(0.3)
        said = f"Group {config.group_id!r} has a member of region orders, which another control plane has"
    for verb in ("init", "start", "host"):
        refused = crkafka(verb)
        assert (refused.code, refused.err.startswith(said)) == (1, True), (verb, refused)
    assert said in {f["what"]: f["text"] for f in crkafka("check", "--json").json}["group"]
    # It was started while Kafka was away: a member looks for itself, and joins no group.
    store = transact.open_store(config.resolved_control_plane())
    store.run("orders", lambda tx: life.start(tx, by="test"))
    assert run_member(config, "orders/0") == REFUSED
    with store.read("orders") as reader:
        assert (reader.select(Group), reader.select(Member)) == ([], [])
    theirs.close()
    if trace == "commits":
        adopts = region_on_kafka.read_text() + "start: {position: default, adopt: their-uid}\n"
        region_on_kafka.write_text(adopts)
        assert (crkafka("init").code, crkafka("start").code) == (0, 0)
