"""A browser and a stage for it, once per session; screenshots and logs are kept under artifacts/."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, sync_playwright

from crkafka_core.dev.kafka import KafkaCluster
from tests.browser.stage import Stage, staged
from tests.rigs.chromium import QUIET_OPTIONS, find_chromium

ARTIFACTS = Path(__file__).parents[2] / "artifacts" / "browser"


@pytest.fixture(scope="module")
def stage(kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("stage")
    topic = kafka.topics.create("orders", 2)
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    try:
        with staged(folder, kafka.bootstrap, topic) as made:
            yield made
    finally:
        if (folder / "dagster.log").exists():
            shutil.copy(folder / "dagster.log", ARTIFACTS / "dagster.log")


@pytest.fixture(scope="session")
def browser() -> Iterator[BrowserContext]:
    """One profile for all tests, which keeps Dagster's compiled code."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=str(find_chromium()), args=list(QUIET_OPTIONS))
        yield chromium.new_context(viewport={"width": 1500, "height": 1000}, reduced_motion="reduce")
        chromium.close()


@pytest.fixture
def page(browser: BrowserContext) -> Iterator[Page]:
    opened = browser.new_page()
    opened.set_default_timeout(90_000)
    try:
        yield opened
    finally:
        opened.screenshot(path=ARTIFACTS / "last.png")
        opened.close()


@pytest.fixture
def shot(page: Page) -> Callable[[str], None]:
    def take(name: str) -> None:
        page.screenshot(path=ARTIFACTS / f"{name}.png")

    return take
