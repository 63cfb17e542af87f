"""The alert rules, judged by Prometheus' own promtool: over time, and with several regions in one Prometheus."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
RULES = ROOT / "docs" / "monitoring" / "alerts.yaml"


def promtool(*arguments: str | Path) -> None:
    program = shutil.which("promtool") or ROOT / ".cache" / "promtool"
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_finds_nothing_wrong_with_the_rules() -> None:
    promtool("check", "rules", RULES)


def test_prometheus_understands_each_query_of_the_dashboard(tmp_path: Path) -> None:
    panels = json.loads((RULES.parent / "dashboard.json").read_text())["panels"]
    queries = {
        f"panel:{p['id']}:{t['refId']}": t["expr"].replace("$region", ".*") for p in panels for t in p["targets"]
    }
    rules = tmp_path / "panels.yaml"
    recorded = [{"record": name, "expr": query} for name, query in queries.items()]
    rules.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": recorded}]}))
    (retention,) = (f"panel:{p['id']}:A" for p in panels if p["title"] == "Time to retention by topic")
    left = {"labels": f'{retention}{{region="a",topic="near"}}', "value": 4200}
    series = {
        'crkafka_topic_retention_margin_records{region="a",topic="near"}': "1000000-4000x200",
        'crkafka_topic_retention_margin_records{region="a",topic="far"}': "1000000x200",
    }
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": retention, "eval_time": "3h", "exp_samples": [left]}],
    }
    file = tmp_path / "test.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": [test]}))
    promtool("check", "rules", rules)
    promtool("test", "rules", file)


@pytest.mark.parametrize(
    ("alert", "at", "series", "regions"),
    [
        pytest.param(
            "CrkafkaHostGone",
            "30m",
            {
                'crkafka_control_plane_up{region="a",instance="h1"}': "1x10 _x50",
                'crkafka_region_members_wanted{region="a",instance="h1"}': "2x10 _x50",
                'crkafka_control_plane_up{region="b",instance="h2"}': "1x60",
                'crkafka_region_members_wanted{region="b",instance="h2"}': "2x60",
                'crkafka_control_plane_up{region="stopped",instance="h3"}': "1x10 _x50",
                'crkafka_region_members_wanted{region="stopped",instance="h3"}': "2x9 0 _x50",
            },
            ["a"],
            id="one of two hosts ends",
        ),
        pytest.param(
            "CrkafkaLagGrows",
            "2h",
            {
                'crkafka_member_lag_records{region="a",member="a/0"}': "0+30000x150",
                'crkafka_member_tuples_submitted_total{region="a",member="a/0"}': "0+60000x150",
                'crkafka_member_lag_records{region="b",member="b/0"}': "4000000-30000x150",  # catches up
                'crkafka_member_tuples_submitted_total{region="b",member="b/0"}': "0+60000x150",
                'crkafka_member_lag_records{region="c",member="c/0"}': "0+100x150",  # seconds of what it reads
                'crkafka_member_tuples_submitted_total{region="c",member="c/0"}': "0+600000x150",
            },
            ["a"],
            id="one region falls behind",
        ),
        pytest.param(
            "CrkafkaRetentionNear",
            "3h",
            {
                'crkafka_topic_retention_margin_records{region="a",topic="t"}': "1000000-4000x200",
                'crkafka_topic_retention_margin_records{region="b",topic="t"}': "1000000-100x200",
                'crkafka_topic_retention_margin_records{region="c",topic="t"}': "5000x200",
            },
            ["a"],
            id="retention overtakes a topic",
        ),
    ],
)
def test_rules_that_look_back_fire_for_the_region_and_for_no_other(
    tmp_path: Path, alert: str, at: str, series: dict[str, str], regions: list[str]
) -> None:
    checked = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "promql_expr_test": [
                    {
                        "expr": f'count by (region) (ALERTS{{alertname="{alert}",alertstate="firing"}})',
                        "eval_time": at,
                        "exp_samples": [{"labels": f'{{region="{region}"}}', "value": 1} for region in regions],
                    }
                ],
            }
        ],
    }
    file = tmp_path / "test.yaml"
    file.write_text(yaml.safe_dump(checked))
    promtool("test", "rules", file)
