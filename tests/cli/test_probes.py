"""Metrics and probes of a host; alert rules and dashboard name only exported metrics."""

from __future__ import annotations

import json
import operator
import random
import re
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from checkpoints_db import initialise
from checkpoints_db.address import parse
from checkpoints_db.store import SqlStore
from crkafka_core.cli import hosting
from crkafka_core.cli.status import health
from crkafka_core.model.errors import ConfigError, ServiceUnavailable
from crkafka_core.model.rows import Checkpoint, Table
from crkafka_core.plane import advance, alarms, cuts, epochs, lateness, life, members, permits
from crkafka_core.plane import tables as plane_tables
from crkafka_core.plane.transact import ControlPlane
from crkafka_core.region import Region, probes
from crkafka_core.region.metrics import Timings, prometheus
from tests.rigs.configs import configured
from tests.rigs.players import PARTITIONS, Player, new_region

MONITORING = Path(__file__).parents[2] / "docs" / "monitoring"
RULES = {
    rule["alert"]: rule
    for group in yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
}
LOOK_BACK = {"CrkafkaHostGone", "CrkafkaLagGrows", "CrkafkaRetentionNear"}
Samples = dict[str, list[tuple[dict[str, str], float]]]


@pytest.fixture
def region(tmp_path: Path) -> Iterator[Region]:
    """One merged checkpoint, one member, one declared table; as Kafka would leave it."""
    config = configured(tmp_path)
    initialise(config.control_plane)
    with Region.open(config) as made:
        plane = made.plane
        life.declare(plane.store, new_region("orders", members_wanted=1))
        plane.do(lambda tx: life.start(tx, by="me"))
        plane.do(lambda tx: plane_tables.declare(tx, "bronze", "delta", str(tmp_path / "bronze")))
        player = Player(plane, "orders/0", random=random.Random(0))
        player.assign(1, PARTITIONS)
        for _ in range(4):
            player.step()
            plane.do(advance.advance)
        plane.do(lambda tx: cuts.open_cut(tx, token="a", cause="test"))
        player.step()
        plane.do(advance.advance)
        reported = {
            "retentionMargins": {"orders": 7, "refunds": 4},
            "partitions": {"orders": {"0": [3, 10], "1": [5, 5]}, "refunds": {"0": [1, 2]}},
        }
        plane.do(lambda tx: members.renew(tx, player.name, player.incarnation, reported))
        yield made


def exported(region: Region) -> Samples:
    found: Samples = {}
    for family in text_string_to_metric_families(prometheus(region)):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    return found


def firing(samples: Samples) -> set[str]:
    """The rules whose expression holds now; those that look back are judged by promtool in test_alerts.py."""
    compared: dict[str, Callable[[float, float], bool]] = {"==": operator.eq, "<": operator.lt, ">": operator.gt}
    found = set()
    for name, rule in RULES.items():
        if missing := re.fullmatch(r"absent\((\w+)\)", rule["expr"]):
            if missing[1] not in samples:
                found.add(name)
            continue
        if name in LOOK_BACK:
            continue
        left, sign, right = re.sub(r"max_over_time\((\w+)\[15m\]\)", r"\1", rule["expr"]).split(" ")
        for labels, value in samples.get(left, []):
            others = [float(right)] if right[0].isdigit() else [v for given, v in samples[right] if given == labels]
            if any(compared[sign](value, other) for other in others):
                found.add(name)
    return found


def test_metrics_have_the_names_and_units_of_prometheus(region: Region) -> None:
    for family in text_string_to_metric_families(prometheus(region)):
        assert re.match("crkafka_(region|member|table|topic|control_plane|build)_", family.name), family.name
        assert family.documentation and family.documentation.endswith("."), family.name
        assert not re.search(r"milli|_ms$|_kb|_mb|minutes", family.name), family.name
        for sample in family.samples:
            assert sample.name.endswith("_total") == (family.type == "counter"), sample.name
            assert sample.labels["region"] == "orders"
    assert firing(exported(region)) == set()


def test_rules_and_dashboard_name_only_what_is_exported(region: Region) -> None:
    names = set(exported(region))
    asked = [rule["expr"] for rule in RULES.values()]
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    asked += [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked += [v["query"] for v in dashboard["templating"]["list"]]
    used = {name for text in asked for name in re.findall(r"crkafka_\w+", text)}
    assert used <= names, used - names
    for rule in RULES.values():
        assert set(rule["annotations"]) == {"summary", "action"} and rule["labels"]["severity"] in ("page", "ticket")
        for label in re.findall(r"\$labels\.(\w+)", str(rule["annotations"])):
            assert label in ("region", "table", "topic")


def test_each_panel_of_the_dashboard_keeps_regions_apart_by_labels_that_its_series_have(region: Region) -> None:
    """What Grafana itself would show; no registry that tests reach has it."""
    samples, panels = exported(region), json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(panels) == len({panel["id"] for panel in panels}) == len(places)
    for panel in panels:
        assert panel["datasource"]["uid"] == "${source}" and panel["fieldConfig"]["defaults"]["unit"]
        for target in panel["targets"]:
            metric, by = re.search(r"crkafka_\w+", target["expr"]), re.search(r"by \(([\w, ]+)\)", target["expr"])
            assert metric is not None and 'region=~"$region"' in target["expr"]
            labels = set(samples[metric[0]][0][0])
            kept = set(by[1].split(", ")) - {"le"} if by else labels
            legend = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            assert "region" in legend and legend == kept <= labels, (panel["title"], legend, kept)


def test_a_histogram_counts_each_merge_and_each_commit_once_from_the_first_scrape_on(region: Region) -> None:
    def counts() -> list[float]:
        samples = exported(region)
        return [
            samples[f"crkafka_{name}_seconds_count"][0][1]
            for name in ("region_pause", "region_merge", "table_freshness")
        ]

    def merge(number: int) -> None:
        row = region.plane.read(lambda reader, _: reader.get(Checkpoint, 1))
        assert row is not None
        late = replace(row, id=number, parent=number - 1, drain_ms=70, opened_at=row.opened_at - 3)
        region.plane.do(lambda tx: (tx.put(late), tx.set_region(head=number)))

    assert counts() == [0, 0, 0]
    merge(2), merge(3)
    assert counts() == [2, 2, 0] == counts()
    permit = region.plane.do(lambda tx: permits.permit_commit(tx, "bronze", holder="x", token="t", upto=1))
    assert permit is not None
    assert counts() == [2, 2, 0]
    region.plane.do(lambda tx: permits.finish_commit(tx, permit, version="1", rows=1))
    region.plane.do(lambda tx: tx.set_region(head=1))  # a rewind takes nothing from a counter
    assert counts() == [2, 2, 1]
    pauses = {labels["le"]: value for labels, value in exported(region)["crkafka_region_pause_seconds_bucket"]}
    assert [le for le, value in pauses.items() if value == 2] == ["0.1", "0.25", "0.5", *list(pauses)[7:]]
    assert 6 < exported(region)["crkafka_region_merge_seconds_sum"][0][1] < 16


def test_lag_and_retention_are_given_by_topic_and_the_version_by_build(region: Region) -> None:
    samples = exported(region)
    assert {labels["topic"]: lag for labels, lag in samples["crkafka_topic_lag_records"]} == {"orders": 7, "refunds": 1}
    margins = samples["crkafka_topic_retention_margin_records"]
    assert {labels["topic"]: margin for labels, margin in margins} == {"orders": 7, "refunds": 4}
    assert samples["crkafka_build_info"] == [({"region": "orders", "version": version("crkafka")}, 1.0)]


def _stop(plane: ControlPlane) -> None:
    plane.do(lambda tx: epochs.halt(tx, "Data loss at orders[0]: offset 7 is gone"))


def _merge_nothing(plane: ControlPlane) -> None:
    plane.do(lambda tx: tx.set_region(period=1.0, last_cut_at=1.0, started_epoch=0, created_at=1.0))


def _miss_the_last_cut(plane: ControlPlane) -> None:
    plane.do(lambda tx: life.stop(tx, token="s", by="me"))
    plane.do(lambda tx: epochs.halt(tx, "the storage is full"))


def _want_more(plane: ControlPlane) -> None:
    plane.do(lambda tx: life.scale(tx, 3, by="me"))


@pytest.mark.parametrize(
    ("what", "fires", "event"),
    [
        (_stop, {"CrkafkaStopped", "CrkafkaAlarmed"}, "stopped"),
        (_merge_nothing, {"CrkafkaNoMerge", "CrkafkaAlarmed"}, "no merge"),
        (_miss_the_last_cut, {"CrkafkaLastCutMissed", "CrkafkaAlarmed"}, "no last cut"),
        (_want_more, {"CrkafkaMembersMissing"}, "scale"),
    ],
)
def test_what_somebody_has_to_know_has_metric_alert_exit_code_and_event(
    region: Region, what: Callable[[ControlPlane], None], fires: set[str], event: str
) -> None:
    from crkafka_core.plane import events

    assert health(region.config).value["healthy"]
    what(region.plane)
    region.plane.do(alarms.watch_merges)
    assert firing(exported(region)) == fires
    assert health(region.config).value["healthy"] is (fires == {"CrkafkaMembersMissing"})
    assert event in [e.kind for e in region.plane.read(lambda r, row: events.last(r, 9))]


def test_a_region_that_keeps_resetting_is_told_before_it_stops_itself(region: Region) -> None:
    for consecutive, fires in ((2, set()), (3, {"CrkafkaKeepsResetting"})):
        region.plane.do(lambda tx, now=consecutive: tx.set_region(period=60.0, consecutive=now))
        assert firing(exported(region)) == fires


def test_a_table_of_which_many_records_are_bad_is_an_alarm_a_metric_and_an_alert(region: Region) -> None:
    """1,000 of 1,050 were dead letters, and no alarm reported it."""
    plane = region.plane
    plane.do(lambda tx: tx.put(replace(tx.select(Table)[0], shape="decode:json")))

    def write(rows: int, bad: int) -> None:
        permit = plane.do(lambda tx: permits.permit_commit(tx, "bronze", holder="x", token="t", upto=1))
        assert permit is not None
        plane.do(lambda tx: permits.finish_commit(tx, permit, version="1", rows=rows, bad={1: bad}))

    write(50, 1_000)
    assert firing(exported(region)) == {"CrkafkaBadRecords", "CrkafkaAlarmed"}
    assert "table bronze: 1000 of its latest 1050 records could not be decoded" in health(region.config).value["alarm"]
    assert exported(region)["crkafka_table_bad_records"] == [({"region": "orders", "table": "bronze"}, 1_000.0)]


def test_a_region_that_a_person_has_stopped_is_no_alert(region: Region, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though its host still runs, with fewer members than it would want, and a table that has not got all."""
    monkeypatch.setattr(lateness, "LATE", -1.0)
    region.plane.do(lambda tx: life.scale(tx, 3, by="me"))
    assert firing(exported(region)) == {"CrkafkaMembersMissing", "CrkafkaTableLate", "CrkafkaAlarmed"}
    assert [bool(lag.late) for lag in region.plane.read(lateness.lags)] == [True]
    region.plane.do(lambda tx: epochs.idle(tx, "stopped"))
    assert firing(exported(region)) == set() and health(region.config).value["healthy"]
    assert [lag.late for lag in region.plane.read(lateness.lags)] == [""]


def test_a_control_plane_that_is_away_is_a_metric_and_no_error(region: Region, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> Any:
        raise ServiceUnavailable("The control plane does not answer.")

    monkeypatch.setattr(Timings, "status", away)
    assert firing(exported(region)) == {"CrkafkaControlPlaneAway"}
    assert firing({}) == {"CrkafkaNothingScraped"}
    with probes.serving(region, "127.0.0.1:0", probes.Pulse()) as url:
        assert get(f"{url}/readyz") == (503, "The control plane does not answer.\n")
        assert get(f"{url}/livez")[0] == 200  # its end would help nobody
        assert get(f"{url}/metrics")[0] == 200


@pytest.mark.parametrize("answers", ["nobody", "silence"])
def test_scrapes_of_a_control_plane_that_is_away_are_answered_before_prometheus_gives_up(
    region: Region, answers: str
) -> None:
    """Prometheus waits 10 s by default, and then reports a missing host. Silence: lost packets, or a frozen server."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if answers == "nobody":
            server.close()
        url = f"postgresql+psycopg://u@127.0.0.1:{port}/db"
        with closing(SqlStore(parse(url))) as store, ExitStack() as stack:
            away = Region(region.config, ControlPlane(store, "orders"))
            served = stack.enter_context(probes.serving(away, "127.0.0.1:0", probes.Pulse()))
            assert 'crkafka_control_plane_up{region="orders"} 0.0' in get(f"{served}/metrics", 7)[1]
            code, text = get(f"{served}/readyz", 7)
            assert code == 503 and "The control plane" in text
            assert get(f"{served}/livez", 1) == (200, "ok\n")


def get(url: str, timeout: float = 5) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=timeout) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_probes_tell_a_supervisor_what_to_do(region: Region, monkeypatch: pytest.MonkeyPatch) -> None:
    pulse = probes.Pulse()
    with probes.serving(region, "127.0.0.1:0", pulse) as url:
        assert get(f"{url}/readyz") == (200, "ok\n") == get(f"{url}/livez")
        code, text = get(f"{url}/metrics")
        assert code == 200 and 'crkafka_region_head{region="orders"} 1.0' in text
        assert get(f"{url}/other") == (404, "There are: /metrics, /livez, /readyz.\n")
        _stop(region.plane)
        assert get(f"{url}/readyz") == (503, "stopped: Data loss at orders[0]: offset 7 is gone\n")
        assert get(f"{url}/livez")[0] == 200  # to end it would help nothing: a person has to look
        monkeypatch.setattr(probes, "SILENT", -1.0)
        pulse.beat()
        assert get(f"{url}/livez")[0] == 503
        with pytest.raises(ConfigError, match="Metrics cannot be served at"), probes.serving(region, url[7:], pulse):
            pass
    for wrong in ("9400x", "localhost:", "a:70000"):
        with pytest.raises(ConfigError, match="Write HOST:PORT"), probes.serving(region, wrong, pulse):
            pass


def test_neither_a_slow_start_of_spark_nor_a_long_last_cut_is_a_host_that_hangs(
    region: Region, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A supervisor would restart it into the same state."""
    codes: dict[str, int] = {}
    stop, url = threading.Event(), ""

    def tell(text: str) -> None:
        nonlocal url
        if text.startswith("metrics at "):
            url = text.removeprefix("metrics at ").replace("/metrics", "/livez")
        elif text.startswith("hosting region"):
            codes["loop"] = get(url)[0]
            stop.set()

    @contextmanager
    def members(*_: object) -> Iterator[SimpleNamespace]:
        codes["start"] = get(url)[0]
        yield SimpleNamespace(given_up=lambda: "")
        codes["end"] = get(url)[0]

    def last_cut(region: Region, by: str) -> Any:
        codes["last cut"] = get(url)[0]
        return region.plane.read(lambda _, row: row)

    monkeypatch.setattr(probes, "SILENT", -1.0)
    monkeypatch.setattr(hosting, "members", members)
    monkeypatch.setattr(Region, "stop", last_cut)
    hosting.host(region.config, stop=stop, start=False, drive=False, metrics="127.0.0.1:0", tell=tell)
    assert codes == {"start": 200, "loop": 503, "last cut": 200, "end": 200}


def test_a_probe_that_fails_is_a_log_and_one_that_nobody_waits_for_is_not(
    region: Region, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Not what `socketserver` prints: a traceback beside the log, which may be JSON, with all that the error says."""
    errors: list[Exception] = [BrokenPipeError("gone"), RuntimeError("a mistake")]

    def fails(*_: object) -> str:
        raise errors.pop(0)

    monkeypatch.setattr(probes, "ready", fails)
    with probes.serving(region, "127.0.0.1:0", probes.Pulse()) as url:
        for _ in range(2):
            with pytest.raises(OSError, match="without response"):
                urllib.request.urlopen(f"{url}/readyz", timeout=5)
    assert [(r.message, "a mistake" in str(r.exc_info)) for r in caplog.records] == [("a probe was not answered", True)]
    assert capfd.readouterr().err == ""
