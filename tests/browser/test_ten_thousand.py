"""Ten thousand checkpoints in Dagster: published as they come, and the asset's page opens (SPEC A3)."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest
from playwright.sync_api import Page

from checkpoints_db import initialise, open_store
from crkafka_core.control import Tx
from crkafka_core.model.rows import Checkpoint, CheckpointStatus
from dagster_project.names import Names, key_of
from tests.browser.stage import DEFINITIONS
from tests.rigs.driven_dagster import DrivenDagster
from tests.rigs.landing import Landing

pytestmark = [pytest.mark.browser, pytest.mark.dagster, pytest.mark.soak, pytest.mark.timeout(600)]

COUNT = 10_000


def checkpoints(first: int, last: int) -> Callable[[Tx], None]:
    """So many checkpoints in SQL alone."""

    def write(tx: Tx) -> None:
        now, region = tx.now(), tx.region().name
        tx.add(
            *(
                Checkpoint(region, i, i - 1, 1, CheckpointStatus.RETIRED, rows=5, merged_at=now, opened_at=now)
                for i in range(first, last + 1)
            )
        )
        tx.set_region(head=last, filling=last, opened=last)

    return write


def test_with_ten_thousand_partitions_a_checkpoint_is_published_and_the_page_opens(
    tmp_path: Path, page: Page, shot: Callable[[str], None]
) -> None:
    url = f"sqlite:///{tmp_path}/crkafka.db"
    initialise(url)
    store = open_store(url)
    landing = Landing(store, tmp_path, control_plane=url, partitions=2)
    landing.region.plane.do(checkpoints(1, COUNT - 1))
    (tmp_path / "orders.yaml").write_text(landing.config.to_json())
    (tmp_path / "many_definitions.py").write_text(DEFINITIONS.format(config=str(tmp_path / "orders.yaml")))
    dagster = DrivenDagster(tmp_path, "many_definitions")
    with dg.DagsterInstance.from_config(str(dagster.home)) as instance:
        instance.add_dynamic_partitions(Names("orders").partitions, [key_of(i) for i in range(1, COUNT)])
    with dagster:
        dagster.until(lambda: len(dagster.partitions("orders", "records")) == COUNT - 1, 60, "the partitions are there")
        landing.region.plane.do(checkpoints(COUNT, COUNT))
        began = time.monotonic()
        dagster.until(
            lambda: dagster.partitions("orders", "records")[-1] == key_of(COUNT), 60, "the last one is published"
        )
        published = time.monotonic() - began
        began = time.monotonic()
        page.goto(f"{dagster.url}/assets/orders/records?view=partitions")
        page.get_by_text(key_of(COUNT)).first.wait_for()
        opened = time.monotonic() - began
        shot("ten-thousand")
    store.close()
    print(f"published within {published:.1f} s, the page opened in {opened:.1f} s")
    assert published < 20 and opened < 20
