"""Membership by lease: launch, register, renew, report, leave, lose (SPEC G1-G5)."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from crkafka_core.control import KeyExists, Reader, Tx
from crkafka_core.model.errors import NotRunning, OldConfiguration, Stale, Superseded, WrongRegion
from crkafka_core.model.offsets import TP, pack, unpack
from crkafka_core.model.phase import FLOWING, Phase, Wanted
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Filler, Group, Launch, Member, MemberStatus, Region, Reset, ResetCause
from crkafka_core.plane import cuts, events, merging, numbers, pauses, roster, starts
from crkafka_core.plane.handover import Handover
from crkafka_core.protocol import subscription as subscriptions


def launch(tx: Tx, name: str) -> int:
    region = tx.region().name
    row = tx.get(Launch, name)
    number = 1 if row is None else row.number + 1
    tx.put(Launch(region, name, number))
    return number


@dataclass(frozen=True)
class Registration:
    """A process that wants to be a member."""

    name: str
    incarnation: str
    launch: int
    region_index: int
    cluster_id: str
    group_id: str
    host: str = ""
    instance_id: str = ""
    subscription: str = subscriptions.UNKNOWN
    member_epochs: bool = False
    """The group is KIP-848's."""
    pid: int = 0
    """Of the process, which `show` names from the start; 0: not known."""


def register(tx: Tx, who: Registration) -> Member:
    """Make this incarnation the registered one of its name; an older one is superseded (SPEC G1, G3)."""
    region = tx.region()
    bind_group(tx, region, who)
    row = tx.get(Member, who.name)
    if row is not None and row.incarnation == who.incarnation:
        return roster.of(tx, who.name, who.incarnation)
    if row is not None and row.launch >= who.launch:
        why = f"{who.name} of region {region.name} was launched again, as {row.launch}."
        raise Superseded(why, hint="This process ends for good.")
    _refuse_unwanted(region, who)
    _check_subscription(tx, region, who)
    _check_protocol(tx, region, who)
    drawn = tx.get(Launch, who.name)
    if drawn is None or drawn.number < who.launch:
        # It was drawn before SQL went back in time: who comes next is later all the same.
        tx.put(Launch(region.name, who.name, who.launch))
    now = tx.now()
    member = Member(
        *(region.name, who.name, who.incarnation, who.launch),
        host=who.host,
        instance_id=who.instance_id,
        first_registered_at=now if row is None or row.status is MemberStatus.LEFT else row.first_registered_at,
        registered_at=now,
        moved_epoch=_moving_in(region),
        member_epochs=who.member_epochs,
        subscription_json=who.subscription,
        metrics_json=json.dumps({"pid": who.pid} if who.pid else {}),
    )
    tx.put(member)
    events.log(tx, "registered", f"launch {who.launch} on {who.host}", member=who.name)
    if row is not None and row.status is MemberStatus.LIVE:
        text = f"{who.name} was started again; its earlier process had not left, so it was killed or cut off"
        _reset_for(tx, row, text)
    carry_forward(tx)
    return member


def _refuse_unwanted(region: Region, who: Registration) -> None:
    if region.phase is Phase.IDLE or region.wanted is Wanted.STOP:
        why = f"Region {region.name} is not started: no members are wanted."
        raise NotRunning(why, hint="`crkafka start` starts it.")
    if roster.index(who.name) >= region.members_wanted:
        why = f"Region {region.name} wants {plural(region.members_wanted, 'member')}; {who.name} is not one."
        raise NotRunning(why, hint="`crkafka scale` adds one.")


def _check_subscription(reader: Reader, region: Region, who: Registration) -> None:
    """Refuse an older configuration that reads a topic which was carried forward (SPEC S4). A topic that a live member still reads was
    deleted in Kafka: it cannot come back by this member."""
    if who.subscription in (region.subscription_json, subscriptions.UNKNOWN):
        return
    readers = [region.subscription_json, *(m.subscription_json for m in roster.live(reader))]
    mine = {i.topic for i in starts.initials(reader) if i.forgotten and subscriptions.reads(who.subscription, i.topic)}
    if late := sorted(topic for topic in mine if not any(subscriptions.reads(each, topic) for each in readers)):
        raise OldConfiguration(
            f"{who.name} was started with an older configuration of region {region.name}: it reads {', '.join(late)}, which the "
            "configuration no longer does.",
            hint="Start its host with the new configuration, or put the topic back into it.",
        )


def _check_protocol(reader: Reader, region: Region, who: Registration) -> None:
    """Refuse a member beside live ones of the group's other protocol: Kafka mixes them, and their generations do not compare (SPEC R1). One
    that registered before the last start, and has reported nothing since, does not count: it may be dead, and the refused one would be the
    first to see that."""
    started = reader.get(Reset, region.started_epoch)
    since = started.at if started is not None else 0.0
    others = [m for m in roster.live(reader) if m.member_epochs != who.member_epochs and m.name != who.name]
    if m := next((m for m in others if m.registered_at >= since or m.epoch >= region.started_epoch), None):
        protocols = {True: "consumer", False: "classic"}
        raise OldConfiguration(
            f"{who.name} has group.protocol {protocols[who.member_epochs]}, but {m.name} of region {region.name} is live with "
            f"group.protocol {protocols[m.member_epochs]}.",
            hint="Change the protocol while the region is stopped: `crkafka stop`, start every host again with one configuration, "
            "`crkafka start`.",
        )


def drop_topics(tx: Tx) -> None:
    """Note the known topics that the configuration no longer reads, and carry forward those that no member reads (SPEC S4)."""
    starts.note_unread(tx)
    carry_forward(tx)


def carry_forward(tx: Tx) -> None:
    """A topic that the configuration no longer reads goes as soon as no live member reads it: till then it is known as before (SPEC S4). A
    member that has left is then waited for no more, if it fills no other."""
    region, live = tx.region(), roster.live(tx)
    dropped: list[str] = json.loads(region.dropped_json)
    waiting = []
    for topic in dropped:
        if any(subscriptions.reads(m.subscription_json, topic) for m in live):
            waiting.append(topic)
        else:
            starts.forget(tx, topic, by="the change of configuration")
    if waiting != dropped:
        tx.set_region(dropped_json=json.dumps(waiting, ensure_ascii=False))
    numbers.leave_out(tx, {m.incarnation for m in live}, starts.known(tx))


def _moving_in(region: Region) -> int:
    """The epoch whose rebalance is the doing of who joins or leaves now; 0 where nothing flows, so that none makes a reset."""
    return region.epoch if region.phase in FLOWING else 0


def check_group(
    reader: Reader, region: Region, *, who: str, region_index: int, cluster_id: str, group_id: str
) -> Group | None:
    """The group, if it is bound already; refused where it, or the region, belongs elsewhere (SPEC G1)."""
    bound, why = reader.get(Group, cluster_id, group_id), ""
    if region_index != region.region_index:
        why = f"region {region.name} with index {region.region_index}, not {region_index}"
    elif bound is not None and bound.region != region.name:
        own = f"region {region.name} (index {region_index})"
        why = f"region {bound.region} (index {bound.region_index}); {who} is of {own}"
    if why:
        hint = "All members of a group are in one region: give the other region a group of its own."
        raise WrongRegion(f"Group {group_id!r} belongs to {why}.", hint=hint)
    if region.group_id and (region.cluster_id, region.group_id) != (cluster_id, group_id):
        raise WrongRegion(
            f"Region {region.name} has group {region.group_id!r} on cluster {region.cluster_id}; {who} connects to group "
            f"{group_id!r} on cluster {cluster_id}.",
            hint="Mend bootstrap.servers or group.id, or make another region.",
        )
    return bound


def regions_of(reader: Reader, group_id: str) -> list[str]:
    """Regions that have a group of this name, on whichever cluster."""
    return [g.region for g in reader.select(Group, ("group_id", "=", group_id))]


def bind_group(tx: Tx, region: Region, who: Registration) -> None:
    """The group belongs to one region; a stranger is refused and leaves no trace (SPEC G1)."""
    cluster, group = who.cluster_id, who.group_id

    def bound() -> Group | None:
        return check_group(tx, region, who=who.name, region_index=who.region_index, cluster_id=cluster, group_id=group)

    if bound():
        return
    try:
        tx.add(Group(cluster, group, region.name, region.region_index))
    except KeyExists:  # another region has bound it since we looked, and is seen now
        bound()
        raise
    tx.set_region(cluster_id=cluster, group_id=group)


def renew(tx: Tx, name: str, incarnation: str, metrics: Mapping[str, Any] | None = None) -> Member:
    """Renew the lease: the counter that others watch goes on (SPEC G4)."""
    row = roster.of(tx, name, incarnation)
    shown = row.metrics_json if metrics is None else json.dumps(metrics)
    renewed = replace(row, renewals=row.renewals + 1, metrics_json=shown)
    tx.put(renewed)
    return renewed


def report(
    tx: Tx, name: str, incarnation: str, *, epoch: int, base: int, generation: int, held: Collection[TP]
) -> Member:
    """What a member has reached: its starts of (epoch, base) are resolved and sought for all it holds."""
    row = roster.of(tx, name, incarnation)
    reported = replace(row, epoch=epoch, base=base, generation=generation, assignment_json=pack(held))
    if reported != row:
        region = tx.region()
        if region.phase in FLOWING and not cuts.fills(tx, region, reported):
            text = f"{name} reports other partitions than it fills"
            _rebalanced(tx, text, by=name)
            if _takes_part(tx, row):  # it was moved before it saw the resume: it has submitted nothing
                merging.go_without(tx, name, text)
        if (row.assignment_json, row.generation) != (reported.assignment_json, generation):
            reported = replace(reported, rebalances=row.rebalances + 1)
            text = f"{plural(len(held), 'partition')} in generation {generation}"
            events.log(tx, "assigned", text, member=name, data={"held": reported.assignment_json})
            pauses.follow(tx, name, held)
        tx.put(reported)
        tx.set_region(settled_at=0.0)
    return reported


def withdraw(tx: Tx, name: str, incarnation: str, *, why: str) -> None:
    """Withdraw a member's report after a revocation. Where records flow, this begins a handover (SPEC R3, X10)."""
    row = roster.of(tx, name, incarnation)
    if row.assignment_json:
        tx.put(replace(row, assignment_json=""))
        events.log(tx, "revoked", why, member=name, data={"held": row.assignment_json, "generation": row.generation})
    if _takes_part(tx, row):
        _rebalanced(tx, f"{name}: {why}", by=name)


def _takes_part(reader: Reader, row: Member) -> bool:
    """Whether records flow, and the member fills the number of now, or is expected by the open cut."""
    region = reader.region()
    if region.phase not in FLOWING:
        return False
    numbered = (reader.get(Filler, number, row.name) for number in {region.filling, region.open_cut})
    return any(f is not None and f.incarnation == row.incarnation for f in numbered)


def _rebalanced(tx: Tx, text: str, *, by: str) -> None:
    """Begin a handover, caused by the first member by name that joined or left in this epoch, if there is one."""
    epoch = tx.region().epoch
    moved = next((m.name for m in roster.all_of(tx) if m.moved_epoch == epoch), "")
    cause = ResetCause.JOIN if moved else ResetCause.REBALANCE
    merging.hand_over(tx, Handover(cause, text, member=moved, by=by))


def ask_to_leave(tx: Tx, name: str, incarnation: str) -> None:
    """A member is to end: what it has submitted is merged before it leaves (SPEC R5, X10)."""
    row = roster.of(tx, name, incarnation)
    if _takes_part(tx, row):
        merging.hand_over(tx, Handover(ResetCause.LEFT, f"{name} leaves", member=name, by=name))


def leave(tx: Tx, name: str, incarnation: str) -> None:
    """A clean end. Where it still fills a number, there is a handover without it (SPEC R5, X10)."""
    row = roster.if_live(tx, name, incarnation)
    if row is None:
        return
    tx.put(replace(row, status=MemberStatus.LEFT, assignment_json="", moved_epoch=_moving_in(tx.region())))
    events.log(tx, "left", member=name)
    carry_forward(tx)
    if _takes_part(tx, row):
        merging.hand_over(tx, Handover(ResetCause.LEFT, f"{name} left", member=name, by=name))


def lose(tx: Tx, name: str, incarnation: str, *, by: str, why: str, renewals: int | None = None) -> None:
    """Declare an incarnation lost: it reports its own failure, or an observer has seen its counter, `renewals`, unchanged for a whole lease
    (SPEC G4)."""
    row = roster.if_live(tx, name, incarnation)
    if row is not None and renewals is not None and row.renewals != renewals:
        raise Stale(f"{name} has renewed its lease meanwhile.")
    if row is not None:
        _lose(tx, row, why, by)


def _lose(tx: Tx, row: Member, why: str, by: str) -> None:
    tx.put(replace(row, status=MemberStatus.LOST, assignment_json=""))
    events.log(tx, "lost", why, member=row.name, by=by)
    _reset_for(tx, row, f"{row.name} was lost: {why}")
    carry_forward(tx)


def _reset_for(tx: Tx, lost: Member, text: str) -> None:
    """A loss where records flow, unless it was a spare that no open cut waits for: nothing of it is missing (SPEC G5, X5)."""
    region = tx.region()
    if region.phase not in FLOWING:
        return
    spare = bool(lost.assignment_json) and not unpack(lost.assignment_json)
    if not spare or (region.open_cut and tx.get(Filler, region.open_cut, lost.name) is not None):
        merging.hand_over(tx, Handover(ResetCause.LOST, text, member=lost.name, by=lost.name))


def behind(region: Region, live: Collection[Member]) -> list[Member]:
    """Live members that are cut off from Kafka, as another's report shows: its generation is newer (SPEC G4).

    One that never reported is not among them: it may wait for the others to poll before Kafka lets it in. None are while a cut is open:
    behind its mark a member polls, and reports a rebalance once the cut is over (SPEC D5).

    Member epochs are compared where two hold one partition, for each member has its own. A member without a partition is behind when
    another has reached a newer epoch of the region; or, once it has withdrawn its report, has reported a newer one in the region's.
    """
    if region.phase is Phase.CUTTING:
        return []
    reached = max((m.epoch for m in live), default=0)
    newest: dict[TP | int, int] = {}
    for m in live:
        if m.assignment_json:
            places: set[TP | int] = {m.epoch, *unpack(m.assignment_json)} if m.member_epochs else {_GROUP}
            for at in places:
                newest[at] = max(m.generation, newest.get(at, -1))

    def is_behind(m: Member) -> bool:
        older_epoch = m.epoch < reached and _by_region_epoch(m)
        return older_epoch or m.generation < max((newest.get(at, -1) for at in _compared(region, m)), default=-1)

    return [m for m in live if m.generation >= 0 and is_behind(m)]


_GROUP = -1
"""Where generations of the classic protocol are compared."""


def _compared(region: Region, m: Member) -> Collection[TP | int]:
    """Where its generation is compared with others': in the group, or, if it is its own, at each partition or in the region's epoch."""
    if not m.member_epochs:
        return (_GROUP,)
    if m.assignment_json:
        return unpack(m.assignment_json)
    return (m.epoch,) if m.epoch == region.epoch else ()


def _by_region_epoch(m: Member) -> bool:
    """Whether no epoch of Kafka's shows that it is behind: it has one of its own, and holds nothing."""
    return m.member_epochs and not (m.assignment_json and unpack(m.assignment_json))


def watch_generations(tx: Tx, stale_after: float, silent_after: float) -> None:
    """Declare members lost that are behind for too long: they are cut off from Kafka alone (SPEC G4). A member that has withdrawn its
    report gets `silent_after`, and so does a spare by member epochs: it may be resolving its starts."""
    live = roster.live(tx)
    late, now = behind(tx.region(), live), tx.now()
    for m in live:
        if m not in late:
            if m.stale_since:
                tx.put(replace(m, stale_since=0.0))
        elif not m.stale_since or m.stale_since > now:  # the clock stepped back
            tx.put(replace(m, stale_since=now))
        elif now - m.stale_since >= (silent_after if not m.assignment_json or _by_region_epoch(m) else stale_after):
            why = f"it shows generation {m.generation} in epoch {m.epoch}, others a newer one"
            _lose(tx, m, why, by="generation watch")
