"""Entry point of the command `crkafka`: finds the verb, runs it, and turns errors into sentences and exit codes.

0 done, 1 the region said no, 2 bad usage or configuration, 3 a service is not there, 130 interrupted.
"""

from __future__ import annotations

import os
import re
import select
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from crkafka_core import logs
from crkafka_core.cli.call import MOST, Call, config_options
from crkafka_core.cli.output import note, of_the_machine
from crkafka_core.config import BadConfiguration, redact
from crkafka_core.model.errors import CrkafkaError, ServiceUnavailable
from crkafka_core.spark import java_log

VERBS = {
    "new": "project",
    "schema": "project",
    "init": "setup",
    "check": "setup",
    "roles": "setup",
    "host": "hosting",
    "start": "life",
    "stop": "life",
    "delete": "life",
    "scale": "life",
    "cut": "cuts",
    "consume": "cuts",
    "reset": "resets",
    "retire": "retention",
    "forget": "retention",
    "skip": "retention",
    "checkpoints": "history",
    "show": "history",
    "events": "history",
    "health": "health",
    "group": "group",
    "pause": "pauses",
    "resume": "pauses",
    "tables": "tables",
    "erase": "erasing",
    "watch": "watching",
    "report": "report",
    "verify": "proving",
    "jars": "jars",
    "dev": "services",
}
"""Verb → its module beside this one; a module is imported only when one of its verbs is used."""
MOVED = {"replay": "tables replay", "mend": "tables mend", "undeclare": "tables undeclare"}
"""Former verb → its present form, for the refusal."""

_ABOUT = {
    "new": "Write a starter project.",
    "schema": "The JSON schema of a region's configuration, for editors.",
    "init": "Make the control plane's tables, and the region.",
    "check": "Is the configuration right, and is everything there that it names?",
    "roles": "SQL for the roles of a control plane on PostgreSQL.",
    "host": "Run the region's members until interrupted.",
    "start": "Want the region to run; also leaves STOPPED.",
    "stop": "Cut a last time; then members leave.",
    "delete": "Delete an idle region, with its segments.",
    "scale": "Want another number of members.",
    "cut": "Drain, checkpoint, merge, resume.",
    "consume": "Consume what is there now, and cut.",
    "reset": "Go back to a checkpoint, or to initial state.",
    "retire": "Delete what is older than the last `retain` checkpoints.",
    "forget": "Carry on without a topic that was deleted or unsubscribed.",
    "skip": "Pass over offsets that no client can read; the gap is recorded.",
    "checkpoints": "List checkpoints, or show one.",
    "show": "The region now: phase, members, head, what it waits for.",
    "health": "Is there something to look at? Exit code 1 says yes.",
    "events": "What happened, to whom, who asked, and why.",
    "group": "The consumer group: what Kafka and the control plane know.",
    "pause": "Pause a partition, topic, pattern or member.",
    "resume": "Take a pause mark away.",
    "tables": "Declared tables: list, advance, replay, mend, maintain, undeclare.",
    "erase": "Take records out of every table for good, as a person's by law.",
    "watch": "A live view: members, partitions, lag, cuts, resets.",
    "report": "What the region has done, as one HTML file.",
    "verify": "Read back what landed, and name the first record that breaks an invariant.",
    "jars": "Bring the jars that Spark needs for tables, with their hashes compared.",
    "dev": "A real Kafka and PostgreSQL in one folder, for a first look.",
}


_EXTRAS = {
    "pyspark": "",
    "deltalake": "[delta]",
    "fastavro": "[avro]",
    "google": "[protobuf]",
    "fsspec": "[s3]",
    "s3fs": "[s3]",
    "grpc": "[connect]",
    "dagster": "[dagster]",
    "psycopg": "[postgres]",
}
"""Package that may be missing → the extra that brings it."""


EXAMPLES = {
    "check": ("check", "check --offline", "-c regions/orders.yaml check --json"),
    "host": ("host", "host --no-drive --logs var/logs", "host --until-idle"),
    "cut": ("cut", 'cut --cause "before the release" --json'),
    "reset": ("reset --to head", "reset --to 17", "reset --to initial --yes"),
    "scale": ("scale 4",),
    "pause": ("pause orders", "pause 'orders[3]'", "pause '^shop'", "pause orders/0", "pause"),
    "tables": ("tables", "tables advance", "tables replay orders_bronze --after 3 --upto 7", "tables mend --look"),
    "erase": ("erase records.csv", "erase - --yes --json < records.csv"),
    "checkpoints": ("checkpoints", "checkpoints 17", "checkpoints --all --json"),
    "watch": ("watch", "watch --once", "watch --json --interval 5"),
    "report": ("report", "report -o monday.html --last 2000"),
}
"""Below the help of a verb."""


_NO_NUMBER = re.compile(r"is not a valid (?:integer|float)(?: range)?")
"""What click says of a word where a number belongs."""
_RANGE = re.compile(
    r"(?P<given>\S+) is not in the range (?:(?P<least>\S+)<=)?x(?:>=(?P<above>\S+?)|<=(?P<most>\S+?))?(?=\.?$)"
)
"""What it says of a number that is too large or too small."""


def _in_words(match: re.Match[str]) -> str:
    least, most = match["least"] or match["above"], match["most"]
    if most == str(MOST):  # nobody meets this bound but who is past it
        least, most = (None, most) if int(match["given"]) > MOST else (least, None)
    bounds = f"from {least} to {most}" if least and most else f"at least {least}" if least else f"at most {most}"
    return f"must be {bounds}, not {match['given']}"


class Verbs(click.Group):
    """Loads a verb's module when the verb is used, so that `crkafka --help` is quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in VERBS:
            return None
        module = import_module(f"crkafka_core.cli.{VERBS[name]}")
        command: click.Command = module.COMMANDS[name]
        if name in EXAMPLES:
            command.epilog = "\b\nExamples:\n" + "\n".join(f"  crkafka {line}" for line in EXAMPLES[name])
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            if now := MOVED.get(args[0]):
                raise click.UsageError(f"`crkafka {args[0]}` is `crkafka {now}` now.")
            from crkafka_core.config.problem import nearest

            raise click.UsageError(f"There is no verb {args[0]!r}.{nearest(args[0], VERBS)}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:  # click would end here with 1 and without a word, whatever pipe it is
            if _reader_is_gone():
                return 0
            raise RuntimeError(f"{type(error).__name__}: {error}") from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(verb, _ABOUT[verb]) for verb in VERBS])


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@config_options
@click.option(
    "--log-format",
    type=click.Choice(logs.FORMATS),
    help="How it logs, and all members that it starts ($CRKAFKA_LOG_FORMAT).",
)
@click.version_option(package_name="crkafka")
@click.pass_context
def cli(ctx: click.Context, config_file: Path | None, region_name: str | None, log_format: str | None) -> None:
    """A Kafka consumer group in a consistent region.

    The configuration is read from -c FILE, else from $CRKAFKA_CONFIG, else from region.yaml in the current folder.

    Exit codes: 0 done, 1 the region said no, 2 bad usage or configuration, 3 a service is not there.

    Completion in the shell: eval "$(_CRKAFKA_COMPLETE=bash_source crkafka)" in ~/.bashrc; also zsh_source, fish_source.
    """
    ctx.obj = Call(config_file, region_name)
    if log_format is not None:
        os.environ["CRKAFKA_LOG_FORMAT"] = log_format
        logs.begin(logs.level("CRITICAL"), log_format, anew=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code."""
    # A person gets one sentence from us; what the clients log beside it is for whoever looks for the cause.
    try:
        logs.begin(logs.level("CRITICAL"), logs.form())
        answer = cli.main(
            args=None if arguments is None else list(arguments), prog_name="crkafka", standalone_mode=False
        )
        sys.stdout.flush()
        return answer if isinstance(answer, int) else 0
    except CrkafkaError as error:
        # What is said of a configuration is all ours, and shows no secret: "sasl.password: is missing" is meant.
        text = str(error) if isinstance(error, BadConfiguration) else redact(str(error))
        text = text.replace("It is tried again", "Try again").replace("it is tried again", "then try again")
        return _say(error, text + _brought_by_us(error, text), error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        return 2
    except click.UsageError as error:
        return _say(error, _wrong_usage(error), 2)
    except click.ClickException as error:
        return _say(error, error.format_message(), 2)
    except (click.Abort, KeyboardInterrupt):
        note("interrupted", "WARNING")
        return 130
    except BrokenPipeError:
        _reader_is_gone()
        return 0
    except ModuleNotFoundError as error:
        text = _not_installed(error)
        return _say(error, text, 2) if text else _unexpected(error)
    except UnicodeEncodeError as error:
        return _say(error, "A character of a path or of an answer is none in this locale. Set LC_ALL=C.UTF-8.", 2)
    except OSError as error:
        text = of_the_machine(error)
        return _say(error, text, ServiceUnavailable.exit_code) if text else _unexpected(error)
    except Exception as error:
        if (of_spark := _of_spark(error)) is not None:
            return _say(error, redact(str(of_spark)), of_spark.exit_code)
        return _unexpected(error)


def _wrong_usage(error: click.UsageError) -> str:
    text = _RANGE.sub(_in_words, _NO_NUMBER.sub("is not a number", error.format_message()))
    text += "" if text.endswith((".", "?")) else "."
    return f"{text} See `{error.ctx.command_path} --help`." if error.ctx else text


def _not_installed(error: ModuleNotFoundError) -> str:
    """Of which extra the module is; empty for one that is of none."""
    package = str(error.name).partition(".")[0]
    extra = _EXTRAS.get(package)
    return "" if extra is None else f"{package} is not installed. pip install 'crkafka{extra}'."


def _reader_is_gone() -> bool:
    """Whether who has read what we print is gone, as `head` is once it has its lines; then it goes nowhere from now on."""
    with suppress(OSError):
        look = select.poll()
        look.register(sys.stdout.fileno(), 0)
        if look.poll(0):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return True
    return False


def _brought_by_us(error: CrkafkaError, text: str) -> str:
    """How the Kafka of `dev up` in this folder is started again, where that is the one that does not answer."""
    if not isinstance(error, ServiceUnavailable):
        return ""
    from crkafka_core.dev.services import BOOTSTRAP, DEFAULT_FOLDER

    file = DEFAULT_FOLDER / BOOTSTRAP
    try:
        here = file.read_text().strip().partition(",")[0]
    except OSError:
        return ""
    return f" `crkafka dev up` starts the one at {here}." if here and here in text else ""


def _unexpected(error: Exception) -> int:
    text = redact(f"{type(error).__name__}: {' '.join(str(error).split())}")
    return _say(error, f"Unexpected, and so a mistake in crkafka: {text} (CRKAFKA_DEBUG=1 shows where).", 1)


def _of_spark(error: Exception) -> CrkafkaError | None:
    """What Java said, when it was Java: its classes are known only where Spark was used."""
    launch = sys.modules.get("crkafka_core.spark.launch")
    if launch is None:
        return None
    explanation: CrkafkaError | None = launch.explained(error)
    return explanation


def _say(error: BaseException, text: str, code: int) -> int:
    if os.environ.get("CRKAFKA_DEBUG"):
        text = redact("".join(traceback.format_exception(error)).rstrip())
    note(text, "ERROR")
    log = java_log.keep()
    if log and log not in text:
        note(f"Spark's log: {log}")
    return code


if __name__ == "__main__":
    main()
