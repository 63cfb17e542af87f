"""What a person does in Dagster's UI, in a real browser, on a real Kafka: look, backfill, go back (SPEC A3, A4, X4).

The tests of this file follow one another on one stage.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from dagster_project.names import key_of
from tests.browser.stage import Stage

pytestmark = [pytest.mark.browser, pytest.mark.kafka, pytest.mark.dagster, pytest.mark.slow, pytest.mark.timeout(600)]

Shot = Callable[[str], None]

BACKFILLS = (
    "{ partitionBackfillsOrError(limit: 5) { ... on PartitionBackfills { results { id status numPartitions } } } }"
)
RUNS = "query R($f: RunsFilter!) { runsOrError(filter: $f, limit: 20) { ... on Runs { results { runId status tags { key value } } } } }"
MADE = """query E($k: AssetKeyInput!, $p: [String!]) { assetOrError(assetKey: $k) { ... on Asset {
  assetMaterializations(partitions: $p, limit: 5) { metadataEntries { label } } } } }"""


def runs(stage: Stage, **filters: Any) -> list[dict[str, Any]]:
    return list(stage.dagster.ask(RUNS, f=filters)["runsOrError"]["results"])


def leave(page: Page) -> None:
    """A page of Dagster asks and draws all the time, for half a core."""
    page.goto("about:blank")


def test_cuts_happen_and_their_partitions_appear(stage: Stage, page: Page, shot: Shot) -> None:
    stage.dagster.until(stage.keys, 180, "the first one that was due is there")
    stage.cut(3)
    stage.dagster.until(lambda: len(stage.keys()) >= 4, 180, "four partitions are there")
    assert stage.keys()[:4] == [key_of(i) for i in range(1, 5)]
    page.goto(f"{stage.dagster.url}/assets/orders/records?view=partitions")
    page.get_by_text(key_of(1)).first.click()
    page.get_by_text("drain_ms").first.wait_for()
    for label in ("dagster/partition_row_count", "cut_ms", "members", "offsets", "every 15 s"):
        expect(page.get_by_text(label, exact=True).first).to_be_visible()
    shot("partition")


def test_the_numbers_are_plotted(stage: Stage, page: Page, shot: Shot) -> None:
    page.goto(f"{stage.dagster.url}/assets/orders/records?view=overview")
    page.get_by_role("button", name="Plots").first.click()
    page.locator("canvas").nth(3).wait_for()
    shot("plots")


def test_a_check_can_be_executed_on_the_page_of_what_no_run_makes(stage: Stage, page: Page, shot: Shot) -> None:
    for asset in ("records", "group"):
        page.goto(f"{stage.dagster.url}/assets/orders/{asset}?view=checks")
        expect(page.get_by_role("button", name="execute Execute", exact=True)).to_be_enabled(timeout=30_000)
        shot(f"checks-of-{asset}")


def test_the_graph_shows_topic_group_and_records(stage: Stage, page: Page, shot: Shot) -> None:
    page.goto(f"{stage.dagster.url}/asset-groups")
    for name in ("records", "group"):
        page.get_by_text(name, exact=True).first.wait_for()
    expect(page.get_by_text("Loading")).to_have_count(0, timeout=60_000)
    shot("graph")


def _open_selection(page: Page, offered: Locator) -> None:
    """Above the button, which the dialog moves while it opens: a click that came too early is made again, as a person would."""
    button = page.get_by_text("Add a partition")
    for _ in range(10):
        box = button.bounding_box()
        assert box is not None
        page.mouse.click(box["x"] + 500, box["y"] - 25)
        with suppress(PlaywrightTimeout):
            offered.wait_for(timeout=5_000)
            return
    raise AssertionError("the selection of partitions did not open")


def test_three_partitions_are_backfilled_by_clicking(stage: Stage, page: Page, shot: Shot) -> None:
    wanted = {key_of(number) for number in (1, 2, 3)}
    # The page lists what there is when it is opened.
    stage.dagster.until(lambda: wanted <= set(stage.keys()), 120, "three partitions are there")
    page.goto(f"{stage.dagster.url}/assets/mine?view=partitions")
    page.get_by_text(key_of(1)).first.click()
    expect(page.get_by_text("No partition selected")).to_have_count(0)
    page.get_by_role("button", name="Materialize…").first.click()
    page.get_by_text("Launch 1 run").wait_for()
    offered = page.locator("[class*=menu-item], [role=menuitem]")
    _open_selection(page, offered.filter(has_text=key_of(2)).first)
    for number in (2, 3):
        offered.filter(has_text=key_of(number)).first.click()
    shot("backfill")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Launch backfill").click()

    def backfills() -> list[dict[str, Any]]:
        return list(stage.dagster.ask(BACKFILLS)["partitionBackfillsOrError"]["results"])

    def done() -> bool:
        (found,) = backfills()
        return bool(found["status"] == "COMPLETED_SUCCESS" and found["numPartitions"] == 3)

    stage.dagster.until(backfills, 60, "the backfill is launched")
    leave(page)
    stage.dagster.until(done, 300, "the backfill has succeeded")
    for number in (1, 2, 3):
        found = stage.dagster.ask(MADE, k={"path": ["mine"]}, p=[key_of(number)])["assetOrError"][
            "assetMaterializations"
        ]
        assert "checkpoint" in [e["label"] for e in found[0]["metadataEntries"]]


def test_a_reset_from_the_launchpad_supersedes_partitions(stage: Stage, page: Page, shot: Shot) -> None:
    before = stage.region.status().region
    page.goto(f"{stage.dagster.url}/locations/{stage.dagster.location}/jobs/orders_reset_region/playground")
    page.locator(".CodeMirror").first.wait_for()
    page.get_by_role("button", name="Launch Run").wait_for()
    expect(page.locator(".CodeMirror").first).not_to_contain_text("bootstrap.servers")
    page.locator(".CodeMirror-lines").first.click()
    page.keyboard.press("Control+A")
    page.keyboard.press("Delete")
    page.keyboard.insert_text('{ops: {reset: {config: {to: "2", cause: "by clicking"}}}}')
    shot("launchpad")
    page.get_by_role("button", name="Launch Run").click()
    stage.dagster.until(lambda: stage.region.status().region.epoch > before.epoch, 240, "the region was reset")
    (run,) = runs(stage, pipelineName="orders_reset_region")
    leave(page)
    assert stage.dagster.finished(run["runId"], 240) == "SUCCESS"
    gone = {key_of(i) for i in range(3, before.head + 1)}
    # A tick that began before the reset may add what it read then; the next tick takes it out.
    stage.dagster.until(lambda: not gone & set(stage.keys()), 60, "what was superseded has left")
    assert stage.keys()[:2] == [key_of(1), key_of(2)]
    # It goes on from there: new checkpoints follow, none of the superseded ones comes back.
    stage.cut(2)
    stage.dagster.until(lambda: len(stage.keys()) >= 4, 240, "new checkpoints have followed")
    assert not gone & set(stage.keys()) and stage.keys() == sorted(stage.keys())
    page.goto(f"{stage.dagster.url}/assets/orders/records?view=partitions")
    page.get_by_text(stage.keys()[2]).first.wait_for()
    shot("superseded")


def test_a_cut_that_is_terminated_leaves_a_region_that_goes_on(stage: Stage) -> None:
    run = stage.dagster.launch("orders_cut", {"ops": {"open_cut": {"config": {"cause": "to be cancelled"}}}})
    stage.dagster.ask(
        "mutation T($id: String!) { terminateRun(runId: $id, terminatePolicy: MARK_AS_CANCELED_IMMEDIATELY) { __typename } }",
        id=run,
    )
    head = stage.region.status().region.head
    stage.dagster.until(lambda: stage.region.status().region.head > head, 180, "another checkpoint was merged")
