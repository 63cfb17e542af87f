"""Entry point of the command `crkafka`: finds the verb, runs it, and turns errors into sentences and exit codes.

0 done, 1 the region said no, 2 bad usage or configuration, 3 a service is not there, 130 interrupted.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import click

from crkafka_core.cli.call import Call, config_options
from crkafka_core.config import redact
from crkafka_core.model.errors import CrkafkaError

VERBS = {
    "init": "setup", "check": "setup",
    "host": "hosting", "start": "life", "stop": "life", "delete": "life", "scale": "life",
    "cut": "cuts", "consume": "cuts", "reset": "resets",
    "retire": "retention", "forget": "retention", "undeclare": "retention",
    "checkpoints": "history", "show": "history", "events": "history",
    "group": "group", "pause": "pauses", "resume": "pauses",
    "replay": "replaying", "mend": "mending", "watch": "watching", "verify": "proving", "simulate": "proving", "dev": "services",
}  # fmt: skip
"""Verb → the module beside this one that has it; a module is imported only when one of its verbs is used."""

_ABOUT = {
    "init": "Make the control plane's tables, and the region.",
    "check": "Is the configuration right, and is everything there that it names?",
    "host": "Run the region's members until interrupted.",
    "start": "Want the region to run; also leaves STOPPED.",
    "stop": "Cut a last time; then members leave.",
    "delete": "Delete an idle region, with its segments.",
    "scale": "Want another number of members.",
    "cut": "Drain, checkpoint, merge, resume.",
    "consume": "Consume what is there now, cut, and stop.",
    "reset": "Go back to a checkpoint, or to initial state.",
    "retire": "Delete what is older than the last `retain` checkpoints.",
    "forget": "Carry on without a topic that was deleted or unsubscribed.",
    "undeclare": "No longer wait for a table that is gone.",
    "checkpoints": "List checkpoints, or show one.",
    "show": "The region now: phase, members, head, what it waits for.",
    "events": "What happened, to whom, who asked, and why.",
    "group": "The consumer group: what Kafka and the control plane know.",
    "pause": "Pause a partition, topic, pattern or member.",
    "resume": "Take a pause mark away.",
    "replay": "Write the rows of a range of checkpoints again.",
    "mend": "Undo in tables what others have written into them.",
    "watch": "A live view: members, partitions, lag, cuts, resets.",
    "verify": "Read back what landed, and name the first record that breaks an invariant.",
    "simulate": "Run a whole region on simulated time, from a seed.",
    "dev": "A real Kafka and PostgreSQL in one folder, for a first look.",
}


class Verbs(click.Group):
    """Loads a verb's module when the verb is used, so that `crkafka --help` is quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in VERBS:
            return None
        module = import_module(f"crkafka_core.cli.{VERBS[name]}")
        command: click.Command = module.COMMANDS[name]
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            from crkafka_core.config.problem import nearest

            raise click.UsageError(f"There is no verb {args[0]!r}.{nearest(args[0], VERBS)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(verb, _ABOUT[verb]) for verb in VERBS])


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@config_options
@click.version_option(package_name="crkafka")
@click.pass_context
def cli(ctx: click.Context, config_file: Path | None, region_name: str | None) -> None:
    """A Kafka consumer group in a consistent region.

    The configuration is read from -c FILE, else from $CRKAFKA_CONFIG, else from region.yaml in the current folder.

    Exit codes: 0 done, 1 the region said no, 2 bad usage or configuration, 3 a service is not there.
    """
    ctx.obj = Call(config_file, region_name)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code."""
    # A person gets one sentence from us; what the clients log beside it is for whoever looks for the cause.
    logging.basicConfig(level=os.environ.get("CRKAFKA_LOG", "CRITICAL").upper(), stream=sys.stderr)
    try:
        answer = cli.main(
            args=None if arguments is None else list(arguments), prog_name="crkafka", standalone_mode=False
        )
        sys.stdout.flush()
        return answer if isinstance(answer, int) else 0
    except CrkafkaError as error:
        return _say(error, redact(str(error)), error.exit_code)
    except click.UsageError as error:
        said = error.format_message()
        said += "" if said.endswith((".", "?")) else "."
        return _say(error, f"{said} See `{error.ctx.command_path} --help`." if error.ctx else said, 2)
    except click.ClickException as error:
        return _say(error, error.format_message(), 2)
    except (click.Abort, KeyboardInterrupt):
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        text = redact(f"{type(error).__name__}: {' '.join(str(error).split())}")
        return _say(error, f"Unexpected, and so a mistake in crkafka: {text} (CRKAFKA_DEBUG=1 shows where).", 1)


def _say(error: BaseException, text: str, code: int) -> int:
    if os.environ.get("CRKAFKA_DEBUG"):
        raise error
    print(text, file=sys.stderr)
    return code


if __name__ == "__main__":
    main()
