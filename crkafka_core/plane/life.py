"""A region's life: declared, started, asked to stop, halted, idle, scaled, deleted (SPEC G5, G6, G9, X6)."""

from __future__ import annotations

from crkafka_core.control import Reader, Store, Tx
from crkafka_core.model import limits
from crkafka_core.model.errors import NotRunning, Refused
from crkafka_core.model.limits import MOST_MEMBERS
from crkafka_core.model.phase import FLOWING, Phase, Wanted
from crkafka_core.model.rows import ROWS, Group, Launch, Region, ResetCause, Table
from crkafka_core.plane import cuts, epochs, events, members, roster, settling
from crkafka_core.plane import tables as plane_tables
from crkafka_core.plane.transact import check_protocol
from crkafka_core.protocol import SPOKEN

CONFIGURED = ("config_json", "limits_json", "period", "subscription_json")
"""Columns of the region's row that a changed configuration brings up to date."""


def declare(store: Store, region: Region, tables: tuple[Table, ...] = (), *, configure: bool = True) -> Region:
    """Make the region's row if there is none; else, with `configure`, bring its configuration up to date. Its uid never changes (SPEC G6).
    A table that is declared otherwise refuses the whole: another format or path is another table (SPEC K6, T1)."""

    def work(tx: Tx) -> Region:
        row = tx.region()
        check_protocol(row)
        if row.created_at and not configure:
            return row
        if row.protocol < SPOKEN:
            tx.set_region(protocol=SPOKEN)
        if row.created_at == 0.0:
            tx.set_region(created_at=tx.now(), phase_since=tx.now())
            events.log(tx, "made", f"uid {row.uid}")
        elif any(getattr(row, name) != getattr(region, name) for name in CONFIGURED):
            tx.set_region(**{name: getattr(region, name) for name in CONFIGURED})
            events.log(tx, "configured")
            members.drop_topics(tx)
        for table in tables:
            here = table.layout == plane_tables.FILES
            plane_tables.declare(
                tx, table.name, table.format, table.path, shape=table.shape, output=table.output, here=here
            )
        return tx.region()

    return store.create(region, work)


def start(tx: Tx, *, by: str) -> Region:
    """Want the region to run; also leaves STOPPED. Tables that lack a fence are waited for (SPEC G9, fault 66)."""
    region = tx.region()
    tx.set_region(wanted=Wanted.RUN, stopping=False)
    if region.phase in (Phase.IDLE, Phase.STOPPED):
        tx.set_region(wait_for_wanted=region.wait_for_wanted or region.phase is Phase.IDLE)
        text = f"the region was started by {by}, and goes on from {epochs.place(region.head)}"
        epochs.start_over(tx, ResetCause.START, text, by=by)
    return tx.region()


def stop(tx: Tx, *, token: str, by: str) -> Region:
    """Want no members: a last cut if the region runs, then they leave (SPEC G9). Asked again, it changes nothing."""
    region = tx.region()
    if region.phase is Phase.IDLE:
        tx.set_region(wanted=Wanted.STOP)
    elif not region.stopping:
        events.log(tx, "stop", by=by)
        tx.set_region(wanted=Wanted.STOP, stopping=True, stopping_since=tx.now())
        if region.phase in FLOWING:
            last_cut(tx, token=token)
        else:
            epochs.idle(tx, f"stopped in {region.phase}")
    return tx.region()


def last_cut(tx: Tx, *, token: str = "") -> None:
    """Cut a last time as soon as the group is settled: a rebalance on its way is waited for, as long as a cut may take (SPEC G9). Anyone
    may call it while the region is stopping. What cannot be cut is given up, and read again at the next start."""
    region = tx.region()
    if region.phase is Phase.CUTTING:
        return
    why = settling.unready(tx, region)
    if region.phase is Phase.RUNNING and not why:
        # Not by the epoch: the region may be started while that cut is open, and stopped in the same epoch again.
        cuts.open_cut(tx, token=token or f"last cut, as number {region.filling}", cause="stop")
        return
    over = tx.now() > region.stopping_since + limits.of(region).drain_timeout  # as long as a cut may take
    if region.phase not in (Phase.RUNNING, Phase.RESETTING) or not roster.live(tx) or over:
        epochs.without_last_cut(tx, why or f"it is {region.phase}")


def scale(tx: Tx, wanted: int, *, by: str) -> Region:
    """Want another number of members; the change costs at most one reset (SPEC G5)."""
    if wanted < 1:
        raise Refused(f"{wanted} members cannot consume.", hint="`crkafka stop` ends all members.")
    if wanted > MOST_MEMBERS:
        raise Refused(f"{wanted:,} members are too many.", hint=f"A region has {MOST_MEMBERS:,} at most.")
    region = tx.region()
    if region.members_wanted != wanted:
        events.log(tx, "scale", f"{region.members_wanted} → {wanted}", by=by)
        tx.set_region(members_wanted=wanted, wait_for_wanted=True)
    return tx.region()


def delete(tx: Tx) -> str:
    """Remove every row of an idle region; its uid, so that its segments can be removed (SPEC G9)."""
    region = tx.region()
    if region.phase is not Phase.IDLE:
        why = f"Region {region.name} is {region.phase}; only an idle one can be deleted."
        raise NotRunning(why, hint="`crkafka stop` first.")
    for row in ROWS:
        if row not in (Region, Launch):
            tx.delete(row)
    tx.delete(Region)
    return region.uid


def tables_of(reader: Reader) -> list[Table]:
    return reader.select(Table)


def all_groups(reader: Reader) -> list[Group]:
    """Consumer groups, whichever region they belong to (SPEC G1)."""
    return reader.select(Group)
