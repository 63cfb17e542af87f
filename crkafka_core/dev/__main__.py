"""`python -m crkafka_core.dev up|down|status [FOLDER] [--brokers 3] [--postgres] [--topic NAME:PARTITIONS] [--sample N]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from crkafka_core.dev.services import DEFAULT_FOLDER, as_json, describe, down, status, up
from crkafka_core.model.errors import CrkafkaError


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m crkafka_core.dev", description=__doc__)
    parser.add_argument("verb", choices=["up", "down", "status"])
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT_FOLDER)
    parser.add_argument("--brokers", type=int, default=1, help="1 or 3")
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--topic", action="append", default=[], metavar="NAME:PARTITIONS")
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="orders in each topic that is made")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(arguments)
    topics = {name: int(partitions or 4) for name, _, partitions in (t.partition(":") for t in chosen.topic)}
    try:
        if chosen.verb == "up":
            state = up(
                chosen.folder,
                brokers=chosen.brokers,
                postgres=chosen.postgres,
                topics=topics,
                sample=chosen.sample,
                progress=_say,
            )
        elif chosen.verb == "down":
            state = down(chosen.folder, progress=_say)
        else:
            state = status(chosen.folder)
    except CrkafkaError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(as_json(state) if chosen.json else describe(state))
    return 0 if chosen.verb != "status" or state.running else 3


def _say(step: str) -> None:
    print(step, "...", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
