"""Entry point of the command `crkafka`: finds the verb, runs it, and turns errors into sentences and exit codes. 0 done, 1 refused by the
region, 2 bad usage or configuration, 3 a service is away, 130 interrupted."""

from __future__ import annotations

import os
import select
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import click

from crkafka_core import logs
from crkafka_core.cli.call import COMMANDS, Call, config_options
from crkafka_core.cli.output import note, of_the_machine
from crkafka_core.model.errors import CrkafkaError, ServiceUnavailable
from crkafka_core.model.redaction import redact


class Verb(NamedTuple):
    """The module beside this one that has a verb, imported only when it is used, and its line in `crkafka --help`."""

    module: str
    about: str


VERBS = {
    "new": Verb("services", "Write a starter project."),
    "init": Verb("setup", "Make the control plane's tables and the region, or bring them up to date."),
    "check": Verb("setup", "Check the configuration and everything that it names."),
    "host": Verb("hosting", "Run the region's members until interrupted."),
    "start": Verb("life", "Start the region; it also leaves STOPPED."),
    "stop": Verb("life", "Cut a last time; then the members leave."),
    "delete": Verb("life", "Delete an idle region with its checkpoints and segments."),
    "scale": Verb("life", "Change the number of members."),
    "cut": Verb("cuts", "Drain, checkpoint, merge, resume."),
    "consume": Verb("cuts", "Consume to the present end of the topics, and cut."),
    "reset": Verb("life", "Go back to a checkpoint, or to the initial state."),
    "retire": Verb("retention", "Delete checkpoints older than the last `retain`."),
    "forget": Verb("retention", "Go on without a topic that was deleted or unsubscribed."),
    "skip": Verb("retention", "Skip offsets that no client can read; the gap is recorded."),
    "show": Verb("status", "The region now: phase, members, head, what it waits for; a live view with --watch."),
    "health": Verb("status", "Does the region need attention? For probes: exit code 1 if it does."),
    "checkpoints": Verb("history", "List checkpoints, or show one."),
    "events": Verb("history", "List events: what happened, to whom, on whose request, and why."),
    "group": Verb("comparing", "The consumer group, as Kafka and as the control plane know it."),
    "pause": Verb("pauses", "Pause a partition, topic, pattern or member."),
    "resume": Verb("pauses", "Remove a pause mark."),
    "tables": Verb("tables", "Declared tables: list, advance, replay, mend, maintain, undeclare."),
    "erase": Verb("retention", "Erase records from every table for good, such as a person's data."),
    "report": Verb("history", "Write the region's history into one HTML file."),
    "verify": Verb("comparing", "Read back what landed, and name the first record that breaks an invariant."),
    "jars": Verb("services", "Copy the jars that Spark needs for tables into a folder, with their hashes checked."),
    "dev": Verb("services", "A real Kafka and PostgreSQL in one folder, for a first look."),
}
MOVED = {
    "roles": "init --roles",
    "schema": "check --schema",
    "watch": "show --watch",
    "replay": "tables replay",
    "mend": "tables mend",
    "undeclare": "tables undeclare",
}
"""Former verb → its present form, for the refusal."""
_EXTRAS = {
    "pyspark": "",
    "deltalake": "[delta]",
    "fastavro": "[avro]",
    "google": "[protobuf]",
    "obstore": "[s3]",
    "botocore": "[s3]",
    "grpc": "[connect]",
    "dagster": "[dagster]",
    "psycopg": "[postgres]",
}
"""Package that may be missing → the extra that brings it."""
EXAMPLES = {
    "init": ("init", "init --roles | psql -v ON_ERROR_STOP=1 -d DATABASE"),
    "check": ("check", "check --offline", "-c regions/orders.yaml check --json"),
    "host": ("host", "host --no-drive --logs var/logs", "host --until-idle"),
    "cut": ("cut", 'cut --cause "before the release" --json'),
    "reset": ("reset --to head", "reset --to 17", "reset --to initial --yes"),
    "scale": ("scale 4",),
    "pause": ("pause orders", "pause 'orders[3]'", "pause '^shop'", "pause orders/0", "pause"),
    "show": ("show", "show --watch", "show --watch --json --interval 5", "show --watch --once"),
    "tables": ("tables", "tables advance", "tables replay orders_bronze --after 3 --upto 7", "tables mend --look"),
    "erase": ("erase records.csv", "erase - --yes --json < records.csv"),
    "checkpoints": ("checkpoints", "checkpoints 17", "checkpoints --all --json"),
    "report": ("report", "report -o monday.html --last 2000"),
}
"""Examples below the help of a verb."""


class Verbs(click.Group):
    """The verbs; a module is loaded when its verb is used, so that `crkafka --help` is quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in VERBS:
            return None
        import_module(f"crkafka_core.cli.{VERBS[name].module}")
        command = COMMANDS[name]
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
        except BrokenPipeError as error:  # click would end with 1 and no message, whichever pipe broke
            if _reader_has_ended():
                return 0
            raise RuntimeError(f"{type(error).__name__}: {error}") from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(name, verb.about) for name, verb in VERBS.items()])


@click.group(
    cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110, "show_default": True}
)
@config_options
@click.option(
    "--log-format",
    type=click.Choice(logs.FORMATS),
    help="Format of its logs and of its members' logs ($CRKAFKA_LOG_FORMAT).",
)
@click.version_option(package_name="crkafka")
@click.pass_context
def cli(ctx: click.Context, config_file: Path | None, region_name: str | None, log_format: str | None) -> None:
    """A Kafka consumer group in a consistent region.

    The configuration is read from -c FILE, else from $CRKAFKA_CONFIG, else from region.yaml in the current folder.

    Exit codes: 0 done, 1 refused by the region, 2 bad usage or configuration, 3 a service is away.

    Completion in the shell: eval "$(_CRKAFKA_COMPLETE=bash_source crkafka)" in ~/.bashrc; also zsh_source, fish_source.
    """
    ctx.obj = Call(config_file, region_name)
    if log_format is not None:
        os.environ["CRKAFKA_LOG_FORMAT"] = log_format
        logs.begin(logs.level("CRITICAL"), log_format, force=True)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    # A person gets one sentence; the logs of the clients are for finding its cause.
    try:
        logs.begin(logs.level("CRITICAL"), logs.form())
        answer = cli.main(
            args=None if arguments is None else list(arguments), prog_name="crkafka", standalone_mode=False
        )
        sys.stdout.flush()
        return answer if isinstance(answer, int) else 0
    except CrkafkaError as error:
        return _report(error, _refusal(error), error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        return 2
    except click.UsageError as error:
        text = error.format_message()
        text += "" if text.endswith((".", "?")) else "."
        return _report(error, f"{text} See `{error.ctx.command_path} --help`." if error.ctx else text, 2)
    except click.ClickException as error:
        return _report(error, error.format_message(), 2)
    except (click.Abort, KeyboardInterrupt):
        note("interrupted", "WARNING")
        return 130
    except BrokenPipeError:
        _reader_has_ended()
        return 0
    except UnicodeEncodeError as error:
        return _report(error, "A path or an answer has a character that this locale lacks. Set LC_ALL=C.UTF-8.", 2)
    except OSError as error:
        text = of_the_machine(error)
        return _report(error, text, ServiceUnavailable.exit_code) if text else _unexpected(error)
    except Exception as error:
        return _unexpected(error)


def _reader_has_ended() -> bool:
    """Whether the reader of stdout has ended, as `head` does after its lines; if so, stdout goes to /dev/null from now on."""
    with suppress(OSError):
        pipe = select.poll()
        pipe.register(sys.stdout.fileno(), 0)
        if pipe.poll(0):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return True
    return False


def _refusal(error: CrkafkaError) -> str:
    from crkafka_core.config.problem import BadConfiguration

    # Messages on a configuration are all ours and show no secret; redaction would hide "sasl.password: is missing".
    text = str(error) if isinstance(error, BadConfiguration) else redact(str(error))
    text = text.replace("It is tried again", "Try again").replace("it is tried again", "then try again")
    if isinstance(error, ServiceUnavailable):
        from crkafka_core.dev.services import BOOTSTRAP, DEFAULT_FOLDER

        with suppress(OSError):  # without the file, no Kafka of this folder is the one that does not answer
            broker = (DEFAULT_FOLDER / BOOTSTRAP).read_text().strip().partition(",")[0]
            text += f" `crkafka dev up` starts the one at {broker}." if broker and broker in text else ""
    return text


def _unexpected(error: Exception) -> int:
    """An error of Java, a package that an extra brings, or a mistake of ours."""
    launch = sys.modules.get("crkafka_core.spark.launch")  # Java does not fail where Spark was not used
    explained: CrkafkaError | None = None if launch is None else launch.explained(error)
    if explained is not None:
        return _report(error, redact(str(explained)), explained.exit_code)
    package = str(error.name).partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if package in _EXTRAS:
        return _report(error, f"{package} is not installed. pip install 'crkafka{_EXTRAS[package]}'.", 2)
    text = redact(f"{type(error).__name__}: {' '.join(str(error).split())}")
    return _report(error, f"Unexpected, so a mistake in crkafka: {text} (CRKAFKA_DEBUG=1 shows where).", 1)


def _report(error: BaseException, text: str, code: int) -> int:
    if os.environ.get("CRKAFKA_DEBUG"):
        text = redact("".join(traceback.format_exception(error)).rstrip())
    note(text, "ERROR")
    java_log = sys.modules.get("crkafka_core.spark.java_log")
    log = None if java_log is None else java_log.keep()
    if log and log not in text:
        note(f"Spark's log: {log}")
    return code


if __name__ == "__main__":
    sys.exit(run())
