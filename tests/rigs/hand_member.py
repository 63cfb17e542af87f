"""A member without Kafka: it registers, reports, and contributes made-up records to every cut, over the real rules."""

from __future__ import annotations

import threading
import uuid
from typing import Any

from crkafka_core.config import RegionConfig
from crkafka_core.model.errors import NotOpen, NotRunning, ServiceUnavailable
from crkafka_core.model.offsets import TP
from crkafka_core.model.phase import Phase
from crkafka_core.model.segment import ClosedSegment, segment_path
from crkafka_core.plane import advance, contributions, members, starts
from crkafka_core.plane.contributions import Part
from crkafka_core.plane.members import Registration
from crkafka_core.plane.transact import ControlPlane
from crkafka_core.segments.storage import Storage
from crkafka_core.segments.writer import SegmentWriter
from tests.rigs.landing import records


class HandMember:
    """`with HandMember(config, plane): …`; holds all partitions, adds `rows` to each in every cut."""

    def __init__(
        self, config: RegionConfig, plane: ControlPlane, *, number: int = 0, partitions: int = 2, rows: int = 10
    ) -> None:
        self.config = config
        self.plane = plane
        self.name = config.member_name(number)
        self.rows = rows
        self.contributes = threading.Event()
        self.contributes.set()
        self.tps = [TP(topic, p) for topic in config.topics or () for p in range(partitions)]
        self.incarnation = uuid.uuid4().hex
        self.errors: list[str] = []
        self._next: dict[TP, int] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    def __enter__(self) -> HandMember:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(self) -> None:
        launch = self.plane.do(lambda tx: members.launch(tx, self.name))
        who = Registration(
            self.name, self.incarnation, launch, self.config.region_index, "cluster", self.config.group_id, host="here"
        )
        self.plane.do(lambda tx: members.register(tx, who))
        self._thread.start()

    def end(self, *, leave: bool = True) -> None:
        self._over.set()
        self._thread.join(10)
        if leave:
            self.plane.do(lambda tx: members.leave(tx, self.name, self.incarnation))

    def _run(self) -> None:
        done = 0
        while not self._over.is_set():
            try:
                region = self.plane.read(lambda _, row: row)
                self.plane.do(lambda tx: members.renew(tx, self.name, self.incarnation, {"lag": 7}))
                if region.phase in (Phase.BIRTH, Phase.RESETTING):
                    self._rest(region.epoch, region.head)
                elif region.phase is Phase.CUTTING and region.open_cut != done and self.contributes.is_set():
                    self._contribute(region.uid, region.epoch, region.head, region.open_cut)
                    done = region.open_cut
                self.plane.do(advance.advance)
                self.plane.wait(region.version, 0.05)
            except (NotRunning, NotOpen, ServiceUnavailable):  # a busy machine's SQLite may be away for a moment
                continue
            except Exception as error:
                self.errors.append(str(error))

    def _rest(self, epoch: int, head: int) -> None:
        ids = {tp: f"id-{tp.topic}" for tp in self.tps}
        proposals = {tp: starts.Proposal(ids[tp], 0, "beginning") for tp in self.tps}
        who: dict[str, Any] = {"incarnation": self.incarnation, "epoch": epoch, "base": head}
        resolved = self.plane.do(
            lambda tx: starts.resolve(tx, member=self.name, topic_ids=ids, proposals=proposals, **who)
        )
        self._next = dict(resolved.offsets)
        self.plane.do(lambda tx: members.report(tx, self.name, generation=1, held=self.tps, **who))

    def _contribute(self, uid: str, epoch: int, head: int, checkpoint: int) -> None:
        offsets = {tp: (self._next[tp], self._next[tp] + self.rows, self.rows) for tp in self.tps}
        part = Part(
            checkpoint=checkpoint,
            member=self.name,
            incarnation=self.incarnation,
            epoch=epoch,
            base=head,
            generation=1,
            members=(self.name,),
            offsets=offsets,
            topic_ids={tp.topic: f"id-{tp.topic}" for tp in self.tps},
            segments=self._segment(uid, epoch, checkpoint, offsets),
            drain_ms=12,
        )
        self.plane.do(lambda tx: contributions.contribute(tx, part))
        self._next = {tp: to for tp, (_, to, _) in offsets.items()}

    def _segment(
        self, uid: str, epoch: int, checkpoint: int, offsets: dict[TP, tuple[int, int, int]]
    ) -> tuple[ClosedSegment, ...]:
        if not self.rows:
            return ()
        writer = SegmentWriter(
            Storage.open(self.config.storage), segment_path(uid, epoch, self.incarnation, checkpoint, 0)
        )
        for tp, (start, stop, _) in offsets.items():
            writer.write(records(tp, start, stop))
        return (writer.close(),)
