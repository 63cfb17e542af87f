"""`python -m bench [ROW …]`: runs the measurements, prints each figure beside its bound; ends with 1 if one does not hold.

`python -m bench peers` measures Flink and Spark beside us, which brings Flink's jars; `python -m bench growth` makes the table and the
picture of docs/speed.md. Neither belongs to what runs without arguments.
"""

from __future__ import annotations

import importlib
import sys
import time

from bench.figure import Figure

MODULES = {
    "bench.spark_source": (1, 11),
    "bench.member": (2, 4, 5, 7),
    "bench.control_plane": (3, 8, 9),
    "bench.dagster_latency": (6,),
    "bench.reading": (10,),
    "bench.tables": (12, 13),
    "bench.peers": (14,),
    "bench.replay": (15,),
    "bench.handover": (16,),
    "bench.marks": (17,),
    "bench.typed": (21,),
    "bench.lake": (19, 20, 21),
}
"""Which module measures which rows; each has `figures(rows)`."""
NAMED = {"peers": 14}
"""Rows that are measured only when they are asked for."""


def main(wanted: set[int]) -> int:
    found: list[Figure] = []
    for module, rows in MODULES.items():
        chosen = [r for r in rows if r in wanted or not (wanted or r in NAMED.values())]
        if not chosen:
            continue
        print(f"{module}: rows {', '.join(map(str, chosen))} …", flush=True)
        began = time.monotonic()
        for figure in importlib.import_module(module).figures(chosen):
            found.append(figure)
            sign = "≥" if figure.at_least else "≤"
            verdict = "holds" if figure.holds else "MISSED"
            print(
                f"  {figure.row}  {figure.what}: {figure.value:.3g} {figure.unit} (bound {sign} {figure.bound:g}) {verdict} {figure.note}",
                flush=True,
            )
        print(f"  {time.monotonic() - began:.0f} s", flush=True)
    missed = [f for f in found if not f.holds]
    print(f"{len(found) - len(missed)} of {len(found)} figures hold")
    return 1 if missed else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["growth"]:
        importlib.import_module("bench.growth").main()
    else:
        sys.exit(main({NAMED.get(a) or int(a) for a in sys.argv[1:]}))
