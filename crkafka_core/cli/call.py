"""Common parts of verbs: the configuration and its options, the answer as text or as JSON, the question before something is destroyed; the
control plane alone, without Kafka and Spark; a Spark session, at its first use."""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from crkafka_core import logs
from crkafka_core.cli.output import Say, note, print_json, progress
from crkafka_core.model.errors import ConfigError, Refused
from crkafka_core.model.visible import visible

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from crkafka_core.config import RegionConfig
    from crkafka_core.config.address import Address
    from crkafka_core.lake.means import Maker
    from crkafka_core.lake.pool import Pool
    from crkafka_core.lake.road import Means
    from crkafka_core.plane.transact import ControlPlane

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T", "RegionConfig", "Address")
PATH = click.Path(path_type=Path)
DEFAULT_FILE = Path("region.yaml")
MOST = 2**63 - 1
"""The largest number that SQL stores."""


@dataclass(frozen=True)
class Call:
    """The configuration that the options name, before or after the verb."""

    config_file: Path | None = None
    region_name: str | None = None

    @property
    def file(self) -> Path | None:
        """The file of -c, else of $CRKAFKA_CONFIG, else region.yaml in the current folder if it exists."""
        named = os.environ.get("CRKAFKA_CONFIG")
        return self.config_file or (Path(named) if named else DEFAULT_FILE if DEFAULT_FILE.exists() else None)

    def config(self) -> RegionConfig:
        from crkafka_core.config import RegionConfig

        return self._loaded(RegionConfig.load)

    def address(self) -> Address:
        """Read of the configuration only where the region's rows are."""
        from crkafka_core.config.address import Address

        try:
            return self._loaded(Address.load)
        except ValueError:
            config = self.config()  # names what is wrong
            return Address(config.region, config.control_plane)

    def _loaded(self, load: Callable[..., T]) -> T:
        file = self.file
        if file is None:
            hint = "Name a configuration with -c FILE or $CRKAFKA_CONFIG."
            raise ConfigError(f"There is no {DEFAULT_FILE} in {Path.cwd()}.", hint=hint)
        loaded = load(file, region=self.region_name)
        logs.about(loaded.region)
        return loaded


class Answer(NamedTuple):
    """The answer of a verb: `value` with --json, else `text`, or what this function prints, and the notes on stderr."""

    value: Any
    text: str | Callable[[], None] = ""
    notes: Sequence[str] = ()
    code: int = 0
    end: Callable[[], None] = lambda: None
    """Called at last; it may raise."""

    def give(self, as_json: bool) -> int:
        if as_json:
            print_json(self.value)
        elif callable(self.text):
            self.text()
        elif self.text:
            print(visible(self.text), flush=True)
        for text in () if as_json else self.notes:
            note(text)
        self.end()
        return self.code


COMMANDS: dict[str, click.Command] = {}
"""The commands of the imported modules, by name."""


def register(name: str, *, group: click.Group | None = None, only_rows: bool = False) -> Callable[[F], F]:
    """Makes a command of a function that takes the configuration first, loaded from -c and -r; with `only_rows` its address alone."""

    def made(function: F) -> F:
        @functools.wraps(function)
        def command(config_file: Path | None, region_name: str | None, **options: Any) -> Any:
            call = called(config_file, region_name)
            return function(call.address() if only_rows else call.config(), **options)

        (COMMANDS if group is None else group.commands)[name] = click.command(name)(config_options(command))
        return function

    return made


def verb(
    name: str,
    *,
    doing: str = "",
    asks: Callable[..., str] | None = None,
    group: click.Group | None = None,
    only_rows: bool = False,
) -> Callable[[F], F]:
    """Makes a command of a plain function, which takes the configuration and its options, and returns an `Answer`. `doing`: the function
    also takes `say`, and its steps are shown. `asks`: the question for the same arguments before something is destroyed; "" for no
    question. `group`: the command is one of this group's. `only_rows`: its configuration is an `Address`."""

    def made(function: F) -> F:
        @functools.wraps(function)
        def command(config: RegionConfig | Address, as_json: bool, yes: bool = False, **options: Any) -> int:
            if asks is not None:
                confirm(asks(config, **options), yes=yes)
            with progress(doing, quiet=as_json) if doing else nullcontext() as say:
                answer: Answer = function(config, **options, **({"say": say} if doing else {}))
            return answer.give(as_json)

        with_yes = command if asks is None else YES(command)
        register(name, group=group, only_rows=only_rows)(json_option(with_yes))
        return function

    return made


def config_options(command: F) -> F:
    several, about = "A region of the file, if it has several.", "The region's configuration."
    command = click.option("-r", "--region", "region_name", metavar="NAME", help=several)(command)
    return click.option("-c", "--config", "config_file", type=PATH, metavar="FILE", help=about)(command)


def called(config_file: Path | None, region_name: str | None) -> Call:
    """The call; options after the verb go before those in front of it."""
    call = click.get_current_context().find_object(Call) or Call()
    return replace(call, config_file=config_file or call.config_file, region_name=region_name or call.region_name)


def number(least: float, most: float = MOST, *, kind: type[int] | type[float] = int) -> Callable[[Any], float]:
    """Converts an option to a number within bounds, or refuses it by a sentence."""

    def convert(text: Any) -> float:
        try:
            value = kind(text)
        except ValueError:
            raise click.BadParameter(f"{text!r} is not a number") from None
        if least <= value <= most:
            return value
        # The bound of SQL is named only to a person who exceeds it.
        bound = f"at most {MOST}" if value > MOST else f"at least {least}"
        raise click.BadParameter(f"must be {f'from {least} to {most}' if most != MOST else bound}, not {text}")

    return convert


def json_option(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


YES = click.option("--yes", is_flag=True, help="Do it without asking.")


def confirm(what: str, *, yes: bool) -> None:
    """Ask before something is destroyed: a question on a terminal, `--yes` everywhere else. No question for \"\"."""
    if yes or not what:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{what} Say --yes to do it.")
    if not click.confirm(f"{what} Go on?", err=True):
        raise Refused("Nothing was done.")


@contextmanager
def control_plane(config: RegionConfig | Address) -> Iterator[ControlPlane]:
    """The region's control plane, closed at the end of the block."""
    from crkafka_core.plane import transact

    with closing(transact.open_store(config.resolved_control_plane())) as store:
        yield transact.ControlPlane(store, config.region)


def means(config: RegionConfig, say: Say, *, then: str = "", pool: Pool | None = None) -> Means:
    """The means to write tables; Spark starts when it has rows to make. `then` is the step that follows its start."""
    from crkafka_core.lake.road import Means

    session = lazy_session(config, say, then=then)

    def frames(*given: Any) -> Maker:
        from crkafka_core.spark.frame_shape import FrameShape

        return FrameShape(session(), *given)

    return Means(pool=pool, frames=frames)


def lazy_session(config: RegionConfig, say: Say, *, then: str = "") -> Callable[[], SparkSession]:
    """Opens the configured session at the first call, and returns it at later ones. `then` is the step that follows, for callers that name
    none. What Java writes goes to a log, which is named only if the verb fails."""

    @functools.cache
    def opened_session() -> SparkSession:
        from crkafka_core.spark import java_log, session

        jars = session.fetches(config)
        say("Spark starts" + (f"; it fetches the jars of {' and '.join(jars)} first" if jars else ""))
        interrupt = signal.getsignal(signal.SIGINT)
        opened = session.open_session(config, log=java_log.path())
        if threading.current_thread() is threading.main_thread():
            # PySpark's handler asks Java over the connection whose answer it interrupts, and reads that answer as an error.
            signal.signal(signal.SIGINT, interrupt)
        if then:
            say(then)
        return opened

    return opened_session
