"""`python -m tests.rigs.simulation SEED [SCHEDULES]`: runs schedules from a seed; prints the history of one, or of the first that fails."""

from __future__ import annotations

import sys

from tests.rigs.simulation.run import simulate


def main(seed: int, schedules: int = 1) -> int:
    for number in range(seed, seed + schedules):
        history = simulate(number)
        if schedules == 1 or not history.ok:
            print(history.text(None))
        if not history.ok:
            return 1
    print(f"{schedules} schedules from seed {seed}: every invariant held")
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
