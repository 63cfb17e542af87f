"""The example of docs/testing.md is a test that passes as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "testing.md"


@pytest.mark.kafka
def test_the_example_passes_as_it_stands_on_the_page(tmp_path: Path) -> None:
    for block in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE.read_text(), re.DOTALL):
        (tmp_path / block[0]).write_text(block[1])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_orders.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert "1 passed" in done.stdout, done.stdout
