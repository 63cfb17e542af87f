"""A region's life: made, started, stopped, scaled, deleted (SPEC G5, G6, G9)."""

from __future__ import annotations

from collections.abc import Callable

from crkafka_core.control import Reader, Store, Tx
from crkafka_core.model.errors import NotRunning, Refused
from crkafka_core.model.phase import Phase, Wanted
from crkafka_core.model.rows import (
    ROWS,
    Event,
    Group,
    Launch,
    Region,
    Table,
)  # fmt: skip
from crkafka_core.plane import cuts, events, limits, members, resets, starts
from crkafka_core.plane import tables as plane_tables
from crkafka_core.protocol import settle

STOP = "stop"
"""Kind of the event that says when a stop was asked for."""


def declare(
    store: Store, region: Region, tables: tuple[Table, ...] = (), subscribed: Callable[[str], bool] = lambda _: True
) -> Region:
    """Make the region's row if there is none; else bring its configuration up to date. Its uid never changes (SPEC G6).

    A topic that is no longer subscribed is carried forward (SPEC S4). A table that is declared otherwise refuses the whole:
    another format or path is another table, which has acknowledged nothing (SPEC K6, T1).
    """

    def work(tx: Tx) -> Region:
        row = tx.region()
        if row.created_at == 0.0:
            tx.set_region(created_at=tx.now(), phase_since=tx.now())
            events.log(tx, "made", f"uid {row.uid}")
        elif (row.config_json, row.limits_json) != (region.config_json, region.limits_json):
            tx.set_region(config_json=region.config_json, limits_json=region.limits_json)
            events.log(tx, "configured")
            for topic in sorted({i.topic for i in starts.known(tx, region.name).values() if not subscribed(i.topic)}):
                starts.forget(tx, topic, by="the change of configuration")
        for table in tables:
            plane_tables.declare(tx, table.name, table.format, table.path)
        return tx.region()

    return store.create(region, work)


def stop(tx: Tx, *, token: str, by: str) -> Region:
    """Want no members: a last cut if the region runs, then they leave (SPEC G9). Asked again, it changes nothing."""
    region = tx.region()
    if region.phase is Phase.IDLE:
        tx.set_region(wanted=Wanted.STOP)
    elif not region.stopping:
        events.log(tx, STOP, by=by)
        tx.set_region(wanted=Wanted.STOP, stopping=True)
        if region.phase in (Phase.RUNNING, Phase.CUTTING):
            last_cut(tx, token=token)
        else:
            resets.idle(tx, f"stopped in {region.phase}")
    return tx.region()


def last_cut(tx: Tx, *, token: str = "") -> None:
    """Cut a last time as soon as the group is settled: a rebalance on its way is waited for, as long as a cut may take (SPEC G9).

    Anyone may call it while the region is stopping. What cannot be cut is given up, and read again at the next start.
    """
    region = tx.region()
    if region.phase is Phase.CUTTING:
        return
    why = cuts.unready(tx, region)
    if region.phase is Phase.RUNNING and not why:
        cuts.open_cut(tx, token=token or f"last cut of epoch {region.epoch}", cause="stop")
    elif region.phase not in (Phase.RUNNING, Phase.RESETTING) or _nobody_there(tx, region) or _overdue(tx, region):
        resets.idle(tx, f"stopped without a last cut: {why or f'it is {region.phase}'}")


def _nobody_there(reader: Reader, region: Region) -> bool:
    return not settle.live(members.all_of(reader, region.name))


def _overdue(reader: Reader, region: Region) -> bool:
    """The stop was asked for longer ago than a cut may take."""
    asked = reader.select(Event, ("region", "=", region.name), ("kind", "=", STOP), order=("seq",), desc=True, limit=1)
    return not asked or reader.now() > asked[0].at + limits.of(region).drain_timeout


def scale(tx: Tx, wanted: int, *, by: str) -> Region:
    """Want another number of members; the change costs at most one reset (SPEC G5)."""
    if wanted < 1:
        raise Refused(f"{wanted} members cannot consume.", hint="`crkafka stop` ends all members.")
    region = tx.region()
    if region.members_wanted != wanted:
        events.log(tx, "scale", f"{region.members_wanted} → {wanted}", by=by)
        tx.set_region(members_wanted=wanted, wait_for_wanted=True)
    return tx.region()


def delete(tx: Tx) -> str:
    """Remove every row of an idle region; its uid, so that its segments can be removed (SPEC G9)."""
    region = tx.region()
    if region.phase is not Phase.IDLE:
        raise NotRunning(
            f"Region {region.name} is {region.phase}; only an idle one can be deleted.", hint="`crkafka stop` first."
        )
    for row in ROWS:
        if row not in (Region, Launch):
            tx.delete(row, ("region", "=", region.name))
    tx.delete(Region, ("name", "=", region.name))
    return region.uid


def tables_of(reader: Reader, region: str) -> list[Table]:
    """The declared tables."""
    return reader.select(Table, ("region", "=", region))


def groups_of(reader: Reader, region: str) -> list[Group]:
    """The Kafka groups bound to the region; one, once a member has registered."""
    return reader.select(Group, ("region", "=", region))
