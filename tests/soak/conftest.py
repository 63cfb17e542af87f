"""Everything here is for `make soak`; its length is `CRKAFKA_SOAK_SECONDS`, half an hour unless said."""

from __future__ import annotations

import os

SECONDS = float(os.environ.get("CRKAFKA_SOAK_SECONDS", "1800"))
"""How long faults go on."""
SEED = int(os.environ.get("CRKAFKA_SOAK_SEED", "0")) or int.from_bytes(os.urandom(3), "big")
"""Which ones: the same number gives the same order of faults."""
