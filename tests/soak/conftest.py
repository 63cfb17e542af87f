"""Everything here is for `make soak`; its length is `SOAK_MINUTES`, half an hour unless said."""

from __future__ import annotations

import os

SECONDS = 60 * float(os.environ.get("SOAK_MINUTES", "30"))
"""How long faults go on."""
SEED = int(os.environ.get("CRKAFKA_SOAK_SEED", "0")) or int.from_bytes(os.urandom(3), "big")
"""Which ones: the same number gives the same order of faults."""
