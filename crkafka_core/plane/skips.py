"""Offsets that a person gives up, since no client can read them: a recorded gap, from the head on (SPEC X9)."""

from __future__ import annotations

from crkafka_core.control import Tx
from crkafka_core.model.errors import Refused
from crkafka_core.model.offsets import TP
from crkafka_core.model.rows import Start, StartReason
from crkafka_core.plane import events, resets, starts


def skip(tx: Tx, tp: TP, first: int, last: int, *, by: str, token: str = "") -> int:
    """Pass over these offsets, both ends included, and reset; the offset at which the partition goes on.

    The head must stand there: what comes before them has landed, and is not given up by mistake. The same `token` finds its own
    skip again, after an unknown outcome.
    """
    region = tx.region()
    if resets.of_token(tx, token) is not None:
        return last + 1
    known = starts.known(tx).get(tp)
    if known is None:
        raise Refused(f"Region {region.name} knows no partition {tp}.", hint="`crkafka show` lists what members hold.")
    stands = starts.lookup(tx, region, {tp: known.topic_id}).offsets[tp]
    if not first <= stands <= last:
        raise Refused(
            f"{tp} stands at offset {stands} of the head: {first} to {last} are not what comes next.",
            hint="`crkafka cut` lands what can be read before them." if stands < first else "They are behind already.",
        )
    row = Start(
        region.name, region.epoch, region.head, tp.topic, tp.partition, known.topic_id, last + 1, StartReason.GAP, ""
    )
    tx.put(row)
    events.log(tx, "skip", f"{tp}: offsets {stands} to {last} are passed over", by=by)
    resets.request(tx, cause=f"skip {tp}@{stands}-{last}", by=by, token=token)
    return last + 1
