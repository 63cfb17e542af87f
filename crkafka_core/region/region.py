"""The facade of a region, which the CLI, Dagster's ops and programs call."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Literal, NoReturn, Self

from crkafka_core.config import RegionConfig
from crkafka_core.control import Tx
from crkafka_core.holder import whoami
from crkafka_core.kafka.edge import Admin
from crkafka_core.loop import THREADS, Runtime
from crkafka_core.member.outside_sql import look_outside, refuse_anothers_now
from crkafka_core.model import limits, rows
from crkafka_core.model.errors import ManualAssignment, NoSuchRegion, NotRunning, ServiceUnavailable, WentBack
from crkafka_core.model.offsets import TP
from crkafka_core.model.plural import plural
from crkafka_core.model.rows import Checkpoint
from crkafka_core.plane import checkpoints, cuts, leases, life, members, pauses, resets, starts, templates
from crkafka_core.plane import restored as restoring
from crkafka_core.plane import tables as plane_tables
from crkafka_core.plane.status import Status, status_of
from crkafka_core.plane.transact import ControlPlane, open_plane
from crkafka_core.protocol import subscription
from crkafka_core.region import retire as retiring
from crkafka_core.region import waiting
from crkafka_core.region.availability import check_available, check_gone, check_inside, check_kept, kafka_away
from crkafka_core.region.lease import DriverLease
from crkafka_core.region.redeclared import refuse_other_keys, refuse_other_templates, refuse_storage_without_segments
from crkafka_core.region.waiting import Progress, silent
from crkafka_core.segments import owner
from crkafka_core.segments.storage import Storage


class Region:
    """A region opened from its configuration. Has only a connection pool: cheap to make, safe to use from several threads."""

    def __init__(self, config: RegionConfig, plane: ControlPlane, runtime: Runtime = THREADS) -> None:
        self.config = config
        self.plane = plane
        self.runtime = runtime

    @classmethod
    def open(cls, config: RegionConfig | Path | str, *, region: str | None = None) -> Self:
        """Open a region from its configuration, or its file; `init` must have made the region."""
        if not isinstance(config, RegionConfig):
            config = RegionConfig.load(config, region=region)
        return cls(config, open_plane(config))

    def close(self) -> None:
        self.plane.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Its life

    def init(self, *, configure: bool = True, again: bool = False) -> rows.Region:
        """Make the region in the control plane; with `configure`, also update the configuration of an existing one.

        `again`: tables of topics that were undeclared are declared again.
        """
        config = self.config
        for table in config.tables:
            config.check_place(table)
        tables = []
        for t in config.tables:
            layout, shape, output = plane_tables.FILES if config.on_road(t) else "", t.shape or "", t.output or ""
            tables.append(
                rows.Table(config.region, t.name, t.format, t.path, layout=layout, shape=shape, output=output)
            )
        fresh = rows.Region(
            name=config.region,
            uid=uuid.uuid4().hex,
            region_index=config.region_index,
            members_wanted=config.members,
            limits_json=limits.dump(config.limits()),
            config_json=config.to_json(),
            period=config.trigger.period or 0.0,
            subscription_json=subscription.dump(config.topics, config.pattern),
        )
        if configure:
            with suppress(NoSuchRegion):
                was, known = self.plane.read(lambda reader, row: (row.config_json, life.tables_of(reader)))
                refuse_other_keys(was, config, known)
                refuse_other_templates(config, known)
                refuse_storage_without_segments(self.plane, config, was)
        made = life.declare(self.plane.store, fresh, tuple(tables), configure=configure)
        templates.declare_new(self.plane, config, again=again, by=whoami())
        return made

    def start(
        self, *, by: str = "", restored: Literal["", "rewind", "initial"] = "", moved: bool = False
    ) -> rows.Region:
        """Want the region to run; also leaves STOPPED. `restored`: where to go on from after SQL went back in time (SPEC G10).

        `moved`: the control plane has another address than before, and takes over its segments; else it is refused as a copy.
        """

        def trust_and_start(tx: Tx) -> rows.Region | WentBack:
            """In one transaction: between two, another process may note that SQL went back, which forbids the start (SPEC G10)."""
            trusted = restoring.trust(tx, seen, by=by or whoami())
            return trusted if isinstance(trusted, WentBack) else life.start(tx, by=by or whoami())

        storage, admin = self.storage(), self.admin()
        self._check_group(admin)
        outside = look_outside(self.plane, storage, admin, self.config.group_id, claim=moved)
        seen, initial = outside.seen, restored == "initial"
        if restored:
            if not initial:
                check_kept(self.plane, outside.files)
            head, tables = self.plane.read(lambda reader, row: (0 if initial else row.head, life.tables_of(reader)))
            if tables:  # their rows are removed, to be read again
                kept = f"`crkafka tables undeclare {tables[0].name}`" + (", and so on" if len(tables) > 1 else "")
                otherwise = f"Restore a newer backup. Or keep what the tables hold: {kept}, set data_loss: gap, then the same again."
                check_available(self.plane, self.admin(), head, otherwise=otherwise)
            row = self.plane.do(lambda tx: restoring.rewind(tx, seen, by=by or whoami(), initial=initial))
        else:
            row = self.plane.do(trust_and_start)
        retiring.own(self.plane, storage, row)
        return row

    def refuse_copy(self) -> None:
        """Raise `NotOwner` for a copy of the control plane with the storage of its original (SPEC T3).

        A copy must give nothing up, and run no members, which would join the original's group.
        """
        uid = self.plane.read(lambda _, row: row.uid)
        owner.check(self.storage(), uid, self.plane.place(), region=self.config.region)

    def _check_group(self, admin: Admin) -> None:
        """Refuse another region's group, or a changed group, before members start (SPEC G1)."""
        config = self.config
        region, bound = self.plane.read(
            lambda reader, row: (row, row.group_id or members.regions_of(reader, config.group_id))
        )
        if not region.head:
            refuse_anothers_now(config, region.uid)
        if not bound:
            return  # no region has a group yet: Kafka is not needed
        cluster = admin.cluster_id()
        ours = partial(members.check_group, region_index=config.region_index, group_id=config.group_id)
        self.plane.read(partial(ours, who=f"this configuration, {config.region},", cluster_id=cluster))

    def stop(self, *, by: str = "", wait: bool = True, progress: Progress = silent) -> rows.Region:
        """Make a last cut, then let members leave (SPEC G9)."""
        token = uuid.uuid4().hex
        region = self.plane.do(lambda tx: life.stop(tx, token=token, by=by or whoami()))
        return waiting.until_idle(self.plane, progress) if wait else region

    def scale(self, members: int, *, by: str = "") -> rows.Region:
        """Change the wanted number of members (SPEC G5)."""
        self.config.host.check_slots(members)
        return self.plane.do(lambda tx: life.scale(tx, members, by=by or whoami()))

    def delete(self) -> int:
        """Remove an idle region and its segments; the number of files removed (SPEC G9). The next call completes an interrupted one."""
        storage, name = self.storage(), self.config.region
        try:
            seen = look_outside(self.plane, storage, None).seen
            region = self.plane.do(lambda tx: restoring.check(tx, seen, by=whoami()))
            restoring.refuse(region)
            owner.begin_deletion(storage, name, region.uid)
            uid = self.plane.do(life.delete)
        except NoSuchRegion:  # its rows are deleted, by an earlier call or by an attempt whose answer was lost
            uid = owner.deletion(storage, name)
            if not uid:
                raise
            owner.check(storage, uid, self.plane.place(), region=name)
        except NotRunning:
            owner.end_deletion(storage, name)
            raise
        files = sum(1 for _ in storage.list(uid))
        storage.delete_folder(uid)
        owner.remove(storage, uid)
        owner.end_deletion(storage, name)
        return files

    # Cuts and resets

    def cut(
        self,
        *,
        cause: str = "by hand",
        token: str = "",
        lease: rows.Lease | None = None,
        if_new: bool = False,
        progress: Progress = silent,
    ) -> Checkpoint:
        """Drain, checkpoint, merge; returns the merged checkpoint. A repeated call with the same token returns the same cut.

        It has the records that members have submitted by then, not all that Kafka has; for these there is `consume`. With `if_new` and
        no new records the returned checkpoint has the status EMPTY, and the head stays.
        """
        opened = self.open_cut(token=token or uuid.uuid4().hex, cause=cause, lease=lease, if_new=if_new)
        progress(f"cut {opened.id} opened: {plural(opened.members, 'member')}")
        self.await_drained(opened.id, progress=progress)
        return self.await_merged(opened.id, progress=progress)

    def open_cut(self, *, token: str, cause: str, lease: rows.Lease | None = None, if_new: bool = False) -> Checkpoint:
        """Open a cut: a mark where cuts do not pause (SPEC D5). A driver passes its lease, so that a late driver is refused (SPEC A6)."""
        opened = partial(cuts.open_cut, token=token, cause=cause, lease=lease, if_new=if_new)
        return self.plane.do(partial(opened, flow=self.config.cuts_flow))

    def await_drained(self, checkpoint: int, *, progress: Progress = silent) -> Checkpoint:
        """Wait until all members have contributed, or the cut has ended."""
        return waiting.until_drained(self.plane, checkpoint, progress)

    def await_merged(self, checkpoint: int, *, progress: Progress = silent) -> Checkpoint:
        """Wait until the cut is merged; raises with the reason if it is aborted."""
        return waiting.until_merged(self.plane, checkpoint, progress)

    def reset(
        self,
        to: int | Literal["initial"] | None = None,
        *,
        by: str = "",
        cause: str = "",
        wait: bool = False,
        token: str = "",
        give_up: Collection[str] = (),
        progress: Progress = silent,
    ) -> int:
        """Reset to the head, to an older merged checkpoint, or to the initial state; the new epoch (SPEC X3, X4).

        `give_up` names forgotten topics whose rows may leave the tables, although they are not read again. After an unknown outcome,
        repeat the call with the same token: that makes no second reset.
        """
        self.plane.read(lambda _, region: restoring.refuse(region))
        token = token or uuid.uuid4().hex
        target = 0 if to == "initial" else to
        if target is not None:
            self.refuse_copy()
            self.plane.read(lambda reader, region: resets.check_target(reader, region, target, give_up))
            check_available(self.plane, self.admin(), target)
        request = partial(resets.request, cause=cause, by=by or whoami(), target=target)
        epoch = self.plane.do(partial(request, token=token, give_up=give_up))
        if wait:
            waiting.until_running(self.plane, epoch, progress)
        return epoch

    def await_running(
        self, epoch: int = 0, *, timeout: float | None = None, progress: Progress = silent
    ) -> rows.Region:
        """Wait until the region runs in this epoch or a later one; raises with the reason if it is stopped."""
        return waiting.until_running(self.plane, epoch, progress, timeout=timeout)

    def retire(self, *, progress: Progress = silent) -> retiring.Retired:
        """Retire checkpoints beyond `retain` that no table or reader needs, and collect orphans (SPEC T1-T3)."""
        from crkafka_core.lake import erase

        erase.note_again(self)  # what was erased before a rewind is known by segments, which may leave now
        about = {"group_id": self.config.group_id, "holder": whoami()}
        with closing(self.admin()) as admin:
            return retiring.retire(self.plane, self.storage(), admin, **about, progress=progress, runtime=self.runtime)

    def forget(self, topic: str, *, by: str = "") -> int:
        """Carry a deleted or unsubscribed topic forward from now on (SPEC S4)."""
        self.refuse_copy()
        if subscription.reads(subscription.dump(self.config.topics, self.config.pattern), topic):
            check_gone(self.admin(), self.config.region, topic, self.plane.read(lambda reader, _: starts.known(reader)))
        return self.plane.do(lambda tx: starts.forget(tx, topic, by=by or whoami()))

    def skip(self, tp: TP, first: int, last: int, *, by: str = "", token: str = "") -> int:
        """Skip unreadable offsets as a recorded gap; the offset at which the partition goes on (SPEC X9).

        After an unknown outcome, repeat the call with the same token.
        """
        self.refuse_copy()
        token = token or uuid.uuid4().hex
        if tp in self.plane.read(lambda reader, _: starts.known(reader)):
            check_inside(self.admin(), tp, last)
        return self.plane.do(lambda tx: resets.skip(tx, tp, first, last, by=by or whoami(), token=token))

    def assign(self, partitions: Iterable[TP]) -> NoReturn:
        """Always refused: Kafka assigns the partitions of a group to its members; use `pause` (SPEC G2, P2)."""
        raise ManualAssignment(
            f"{', '.join(map(str, sorted(partitions)))} cannot be assigned or unassigned by hand: group {self.config.group_id!r} of "
            f"region {self.config.region} shares its partitions among its members, and a partition taken by hand would be read twice.",
            hint="Choose `topics` or a `pattern`, and `crkafka pause` for what should not flow.",
        )

    unassign = assign

    def pause(self, kind: str, what: str, *, member: str = "", by: str = "") -> None:
        """Set a pause mark: kind is partition, topic, pattern or member; with `member` it applies to that member only (SPEC P1, P2)."""
        self.plane.do(lambda tx: pauses.pause(tx, kind, what, member=member, by=by or whoami()))

    def resume(self, kind: str, what: str, *, member: str = "", by: str = "") -> bool:
        """Remove a pause mark; False if there was none."""
        return self.plane.do(lambda tx: pauses.resume(tx, kind, what, member=member, by=by or whoami()))

    # Looking

    def status(self) -> Status:
        """State of the region and its members, and what it waits for."""
        return self.plane.read(status_of)

    def checkpoints(self, *, limit: int | None = None) -> list[Checkpoint]:
        """Live checkpoints, retired ones included, newest first."""
        return self.plane.read(lambda reader, _: checkpoints.newest(reader, limit, checkpoints.LIVE))

    def driver(self, *, data: str = "{}") -> DriverLease:
        """The lease for driving cuts; a second driver is refused with the holder's name (SPEC A6)."""
        return DriverLease(self.plane, leases.DRIVER, whoami(), data=data, runtime=self.runtime)

    # Connections

    def admin(self) -> Admin:
        from crkafka_core.kafka.admin import KafkaAdmin

        return KafkaAdmin(self.config.resolved_kafka(), client_id=f"crkafka-{self.config.region}-admin")

    def storage(self) -> Storage:
        return Storage.of(self.config)

    @contextmanager
    def hosted(self, *, progress: Progress = silent) -> Iterator[Self]:
        """Run members on the configured host during the block, then stop the region.

        Raises if Kafka does not answer: members would wait for it without end.
        """
        from crkafka_core.region.host import hosting, only_host

        self.init(configure=False)
        if away := kafka_away(self.config, set()):
            raise ServiceUnavailable(away)
        with only_host(self, say=progress) as right:
            self.start()
            with hosting(self):
                try:
                    waiting.until_running(self.plane, 0, progress)
                    yield self
                finally:
                    if right.lost is None:
                        self.stop(progress=progress)
