"""OpenLineage: an event for each acknowledged commit, sent beside the work; off unless OPENLINEAGE_URL is set.

The job is the region, its inputs are the topics with the offsets that the commit covers, its output is the table with its version.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from typing import Any
from urllib.parse import urlsplit
from uuid import NAMESPACE_URL, uuid5

from crkafka_core.config.location import in_catalog
from crkafka_core.config.region_config import RegionConfig
from crkafka_core.lake.handle import Handle
from crkafka_core.model.redaction import redact
from crkafka_core.model.rows import MergedOffset, Table
from crkafka_core.plane import checkpoints
from crkafka_core.plane.permits import Permit

_log = logging.getLogger(__name__)
PRODUCER = "https://pypi.org/project/crkafka"
OFFSETS = "crkafka_offsets"
"""The facet of an input: partition → [first offset, next offset]. Other names than OpenLineage's own begin with their producer's."""


def tell(region: Handle, permit: Permit, version: str, rows: int) -> None:
    """Send the event of an acknowledged commit; a failure is logged."""
    if not (url := os.environ.get("OPENLINEAGE_URL", "")):
        return
    try:
        ids = permit.plan.checkpoints
        offsets = region.plane.read(lambda reader, _: checkpoints.offsets(reader, min(ids), max(ids)))
        _client(url).emit(event(region.config, permit, version, rows, [o for o in offsets if o.checkpoint in ids]))
    except Exception as error:
        commit, why = permit.commit, redact(str(error))
        _log.warning("commit %s to table %s: no OpenLineage event: %s", commit.number, commit.table, why)


@cache
def _client(url: str) -> Any:
    """One of the process; its own thread sends. The key is in OPENLINEAGE_API_KEY, as for every client of OpenLineage."""
    try:
        from openlineage.client import OpenLineageClient
    except ImportError:
        raise RuntimeError("openlineage-python is missing: pip install 'crkafka[lineage]'") from None
    transport: dict[str, Any] = {"type": "async_http", "url": url}
    if key := os.environ.get("OPENLINEAGE_API_KEY"):
        transport["auth"] = {"type": "api_key", "apiKey": key}
    return OpenLineageClient(config={"transport": transport})


def event(config: RegionConfig, permit: Permit, version: str, rows: int, offsets: Iterable[MergedOffset]) -> Any:
    """The event. A commit always has the same run id: sent twice, it is one run."""
    from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
    from openlineage.client.generated.base import InputDatasetFacet
    from openlineage.client.generated.dataset_version_dataset import DatasetVersionDatasetFacet
    from openlineage.client.generated.output_statistics_output_dataset import OutputStatisticsOutputDatasetFacet

    facet: Any = InputDatasetFacet(producer=PRODUCER)
    run = uuid5(NAMESPACE_URL, f"{permit.plan.uid}/{permit.table.name}/{permit.commit.number}")
    kafka = f"kafka://{config.resolved_kafka()['bootstrap.servers'].partition(',')[0]}"
    namespace, name = dataset(permit.table)
    return RunEvent(
        eventType=RunState.COMPLETE,
        eventTime=datetime.now(UTC).isoformat(),
        run=Run(runId=str(run)),
        job=Job(namespace=kafka, name=config.region),
        inputs=[
            InputDataset(
                namespace=kafka, name=topic, inputFacets={OFFSETS: facet.with_additional_properties(partitions=spans)}
            )
            for topic, spans in _spans(offsets).items()
        ],
        outputs=[
            OutputDataset(
                namespace=namespace,
                name=name,
                facets={"version": DatasetVersionDatasetFacet(version, producer=PRODUCER)},
                outputFacets={"outputStatistics": OutputStatisticsOutputDatasetFacet(rows, producer=PRODUCER)},
            )
        ],
        producer=PRODUCER,
    )


def dataset(table: Table) -> tuple[str, str]:
    """Namespace and name of a table, as OpenLineage names files and stores; of one in a catalog, the catalog and the rest."""
    if in_catalog(table.path):
        catalog, _, name = table.path.partition(".")
        return f"catalog://{catalog}", name
    url = urlsplit(table.path)
    if url.scheme in ("", "file"):
        return "file", url.path
    return f"{url.scheme}://{url.netloc}", url.path.strip("/")


def _spans(offsets: Iterable[MergedOffset]) -> dict[str, dict[str, list[int]]]:
    """Topic → partition → the first offset, and the next one behind the last."""
    spans: dict[str, dict[str, list[int]]] = {}
    for o in offsets:
        span = spans.setdefault(o.topic, {}).setdefault(str(o.partition), [o.from_offset, o.to_offset])
        span[:] = min(span[0], o.from_offset), max(span[1], o.to_offset)
    return spans
