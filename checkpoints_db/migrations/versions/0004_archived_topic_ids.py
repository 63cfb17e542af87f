"""Archives keep the ids of their topics and of the cluster: a topic made anew is another one (SPEC T2, K3)."""

from __future__ import annotations

import json
from collections import defaultdict

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
REGION = sa.table("region", sa.column("name"), sa.column("cluster_id"))
INITIAL = sa.table("initial_offset", sa.column("region"), sa.column("topic"), sa.column("topic_id"))
CHECKPOINT = sa.table(
    "checkpoint", *map(sa.column, ("region", "id", "archive_json", "cluster_id", "archive_topics_json"))
)


def upgrade() -> None:
    """What is archived gets the id of each topic that had only one so far; of others nobody can tell, and a re-read says so."""
    op.add_column("checkpoint", sa.Column("cluster_id", TEXT, nullable=False, server_default=""))
    op.add_column("checkpoint", sa.Column("archive_topics_json", TEXT, nullable=False, server_default="{}"))
    database = op.get_bind()
    for name, cluster in database.execute(sa.select(REGION.c.name, REGION.c.cluster_id)).fetchall():
        mine = CHECKPOINT.c.region == name
        database.execute(sa.update(CHECKPOINT).where(mine).values(cluster_id=cluster))
        ids: defaultdict[str, set[str]] = defaultdict(set)
        for topic, topic_id in database.execute(
            sa.select(INITIAL.c.topic, INITIAL.c.topic_id).where(INITIAL.c.region == name)
        ):
            ids[topic].add(topic_id)
        only = {topic: next(iter(there)) for topic, there in ids.items() if len(there) == 1}
        archives = sa.select(CHECKPOINT.c.id, CHECKPOINT.c.archive_json).where(mine, CHECKPOINT.c.archive_json != "{}")
        for number, archive in database.execute(archives).fetchall():
            known = {topic: only[topic] for topic in json.loads(archive) if topic in only}
            database.execute(
                sa.update(CHECKPOINT)
                .where(mine, CHECKPOINT.c.id == number)
                .values(archive_topics_json=json.dumps(known, ensure_ascii=False, separators=(",", ":")))
            )
