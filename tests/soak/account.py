"""What half an hour of faults came to: faults by kind, cuts, resets, how long each took to be over, and how long nothing was merged."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median

from tests.rigs.scenario import Scenario

ARTIFACTS = Path(__file__).resolve().parents[2] / "artifacts"


@dataclass
class Account:
    database: str
    seed: int
    seconds: float
    recovered: dict[str, list[float]] = field(default_factory=dict)
    """Fault → seconds from its end to the merge of a checkpoint that was opened after it, with every member there again."""

    def over(self, faults: list[str], seconds: float) -> None:
        for fault in faults:
            self.recovered.setdefault(fault, []).append(seconds)

    def write(self, s: Scenario, rows: int) -> str:
        """The text, which is also kept in `artifacts`."""
        merged = [e.at for e in s.events("merged")]
        pauses = [after - before for before, after in pairwise(merged)]
        told = {
            "database": self.database,
            "seed": self.seed,
            "seconds": round(self.seconds),
            "rows landed": rows,
            "faults": sum(map(len, self.recovered.values())),
            "checkpoints": len(merged),
            "cuts aborted": len(s.events("abort")),
            "resets": len(s.events("reset")),
            "members lost": len(s.events("lost")),
            "stops": len(s.events("stopped")),
            "longest time without a checkpoint, s": round(max(pauses, default=0.0), 1),
        }
        lines = [f"{what}: {value}" for what, value in told.items()]
        lines += ["", "| fault | times | over after, median (s) | at most (s) |", "|---|---|---|---|"]
        for fault, took in sorted(self.recovered.items()):
            words = f"{fault[1:3].lstrip('0')} {fault[4:].replace('_', ' ')}".strip()
            lines.append(f"| {words} | {len(took)} | {median(took):.1f} | {max(took):.1f} |")
        text = "\n".join(lines)
        ARTIFACTS.mkdir(exist_ok=True)
        name = f"soak-{self.database}-{self.seed}"
        (ARTIFACTS / f"{name}.md").write_text(text + "\n")
        (ARTIFACTS / f"{name}.json").write_text(json.dumps(told | {"recovered": self.recovered}, indent=1))
        return text
