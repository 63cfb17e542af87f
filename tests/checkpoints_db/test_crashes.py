"""Every mutation of the control plane dies after each of its statements, and by kill -9: what follows completes or undoes it."""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import signal
from collections.abc import Callable
from typing import Any

import pytest

from checkpoints_db import SqlStore, open_store
from crkafka_core import plane
from crkafka_core.control import Store, Tx
from crkafka_core.model.errors import Refused
from crkafka_core.model.rows import ROWS, Region
from tests.checkpoints_db import mutation_cases
from tests.checkpoints_db.mutation_cases import CASES, NAME, Stage
from tests.rigs.invariants import Invariants
from tests.rigs.memory import ConnectionCut, MemoryStore


class Died(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("case", CASES)
def test_a_crash_after_each_statement_in_memory(case: str) -> None:
    _crash_everywhere(case, lambda: MemoryStore(_Steady()))


@pytest.mark.parametrize("case", CASES)
def test_a_connection_that_dies_after_each_statement(case: str) -> None:
    """The store tries again by itself: the caller hears of nothing."""
    stage, work = _staged(case, MemoryStore(_Steady()))
    clean = _outcome(stage, work)
    for step in range(1, 200):
        stage, work = _staged(case, MemoryStore(_Steady()))
        fired = _die_at(stage.store, step, ConnectionCut)
        outcome = _outcome(stage, work)
        Invariants(NAME).check_store(stage.store)
        if fired == ["committed"]:
            _found_its_own_effect(case, clean, outcome)
        else:
            assert outcome == clean, (step, fired)
        if not fired:
            return
    raise AssertionError("it never ended")


HEAVIEST = (
    *("merge", "contribute", "abort past the deadline", "reset to an older one", "retire"),
    "register anew while running",
)
ON_DISK = [case if case in HEAVIEST else pytest.param(case, marks=pytest.mark.soak) for case in CASES]
"""Each rule is crashed in memory; that a database keeps all or nothing does not depend on the rule."""


@pytest.mark.parametrize("case", ON_DISK)
def test_a_crash_after_each_statement_on_real_databases(case: str, new_url: str) -> None:
    def make() -> SqlStore:
        store = open_store(new_url, clock=_Steady())
        for row in store.regions():
            store.run(row.name, _wipe)
        return store

    _crash_everywhere(case, make)


@pytest.mark.parametrize("case", ON_DISK)
def test_kill_9_in_the_mutation(case: str, new_sqlite_url: str) -> None:
    """A real process is killed between two statements, somewhere in the middle, of a mutation on a real file."""
    store = open_store(new_sqlite_url, clock=_Steady())
    stage, work = _staged(case, store)
    before = _rows(store)
    seen: list[str] = []
    rehearsal, rehearsed = _staged(case, MemoryStore(_Steady()))
    rehearsal.store.on_statement = seen.append  # type: ignore[attr-defined]
    _outcome(rehearsal, rehearsed)
    at = max(1, len(seen) - 2)

    pid = os.fork()
    if pid == 0:
        try:
            _kill_at(store, at)
            stage.plane.do(work)
        finally:
            os._exit(7)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, status
    assert _rows(store) == before
    Invariants(NAME).check_store(store)
    _outcome(stage, work)
    assert _rows(store) != before
    Invariants(NAME).check_store(store)
    store.close()


# --- what the tests are made of ---


class _Steady:
    """Time that stands still, so that outcomes can be compared."""

    def __call__(self) -> float:
        return 1_000_000.0


def _staged(case: str, store: Store) -> tuple[Stage, Callable[[Tx], Any]]:
    prepare, mutation = CASES[case]
    stage = Stage(store)
    prepare(stage)
    return stage, mutation(stage)


def _outcome(stage: Stage, work: Callable[[Tx], Any]) -> dict[str, list[Any]]:
    try:
        stage.plane.do(work)
    except Refused:
        pass
    finally:
        stage.store.on_statement = None  # type: ignore[attr-defined]
    return _rows(stage.store)


def _crash_everywhere(case: str, make: Callable[[], Any]) -> None:
    """Death after death, each one statement later; on the same store, as long as what died left what was before."""
    stage, work = _staged(case, make())
    clean = _outcome(stage, work)
    stage.store.close()
    step = 0
    for _ in range(5):
        stage, work = _staged(case, make())
        watch = Invariants(NAME)
        watch.check_store(stage.store)
        before = _rows(stage.store)
        died = ""
        while died != "committed" and step < 200:
            step += 1
            fired = _die_at(stage.store, step, Died)
            try:
                assert _outcome(stage, work) == clean, step
            except Died as death:
                died = str(death)
                assert _rows(stage.store) == (clean if died == "committed" else before), (step, died)
                watch.check_store(stage.store)
            if not fired:
                stage.store.close()
                return
        again = _outcome(stage, work)
        watch.check_store(stage.store)
        _found_its_own_effect(case, clean, again)
        stage.store.close()
    raise AssertionError("it never ended")


def _found_its_own_effect(case: str, clean: dict[str, list[Any]], again: dict[str, list[Any]]) -> None:
    """Run again after an unknown outcome, a mutation changes no checkpoint, offset, start or commit."""
    if case in _ASKED_AGAIN:
        return
    for name in clean:
        if name not in ("Event", "Region", "Member", "Launch", "Lease"):
            assert again[name] == clean[name], name


_ASKED_AGAIN = frozenset({"reset to the head", "reset to an older one"})
"""A person's word, said twice, counts twice (SPEC X5): another epoch, the same head."""


def _die_at(store: Any, step: int, death: type[BaseException]) -> list[str]:
    """Raise before the statement of this number; the list tells whether it came to that."""
    fired: list[str] = []
    left = [step]

    def hook(what: str) -> None:
        left[0] -= 1
        if left[0] == 0:
            fired.append(what)
            raise death(what)

    store.on_statement = hook
    return fired


def _kill_at(store: Any, step: int) -> None:
    left = [step]

    def hook(what: str) -> None:
        left[0] -= 1
        if left[0] == 0 or what == "commit":
            os.kill(os.getpid(), signal.SIGKILL)

    store.on_statement = hook


def _rows(store: Store) -> dict[str, list[Any]]:
    with store.read(NAME) as reader:
        return {row.__name__: reader.select(row) for row in ROWS}


def _wipe(tx: Tx) -> None:
    for row in ROWS:
        if row is not Region:
            tx.delete(row)
    tx.delete(Region)


def test_every_mutation_has_a_case() -> None:
    """What takes a transaction, in any module of the plane, has a case; what has none is named."""
    others = {  # steps inside the mutations that are crashed here; `restored.same` only looks
        "events": "log drop_old raise_alarm",
        "advance": "leave_the_future",
        "retire": "forget_history",
        "permits": "take acknowledge owe_fence number_above",
        "members": "bind_group watch_generations drop_topics carry_forward",
        "resets": "begin failed",
        "merging": "hand_over finish go_without",
        "handover": "begin note fails",
        "starts": "note_unread",
        "goals": "leave_out",
        "cuts": "begin_fill begin",
        "numbers": "begin hand_out hand_on leave_out leave_behind bury",
        "epochs": "raise_epoch start_over rewind rest after_fence drop_parts idle without_last_cut",
        "pauses": "follow",
        "erasure": "pass_over",
        "restored": "notice same",
        "alarms": "stalled",
    }
    source = inspect.getsource(mutation_cases)
    for found in pkgutil.iter_modules(plane.__path__):
        short, module = found.name, importlib.import_module(f"{plane.__name__}.{found.name}")
        for name, function in vars(module).items():
            if name.startswith("_") or not inspect.isfunction(function) or function.__module__ != module.__name__:
                continue
            first = next(iter(inspect.signature(function).parameters), "")
            if first == "tx" and name not in others.get(short, "").split():
                assert f"{short}.{name}" in source, f"{short}.{name} is crashed nowhere"
