"""A region's tables by their names in a Hive metastore (Derby, inside of this process): `python -m tests.spark.in_hive FOLDER`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from crkafka_core.dev.jars import DELTA, ICEBERG
from crkafka_core.model.offsets import TP
from crkafka_core.segments.batch import Batch
from crkafka_core.spark import session, tables
from tests.rigs.landing import Landing, records
from tests.rigs.memory import MemoryStore
from tests.spark.conftest import SMALL

CATALOGS = {"delta": "spark_catalog", "iceberg": "hive"}
NAMES = ("raw", "typed")
SCHEMA = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}


def settings(folder: Path) -> dict[str, str]:
    """As docs/tables.md has them, and what makes a metastore in this process."""
    metastore = f"jdbc:derby:;databaseName={folder}/metastore;create=true"
    return {
        "spark.jars": ",".join(str(jar) for each in (DELTA, ICEBERG) for jar in each.jars()),
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.sql.catalog.hive": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.hive.type": "hive",
        "spark.sql.catalog.hive.warehouse": f"{folder}/lake",
        "spark.hadoop.javax.jdo.option.ConnectionURL": metastore,
        "spark.hadoop.datanucleus.schema.autoCreateAll": "true",
        "spark.hadoop.hive.metastore.schema.verification": "false",
        "spark.hadoop.iceberg.engine.hive.lock-enabled": "false",  # this metastore has no tables for locks
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
        **SMALL,
    }


def landed(folder: Path) -> Landing:
    (folder / "order.json").write_text(json.dumps(SCHEMA))
    typed = {"typed": {"json": str(folder / "order.json")}}
    declared = [
        {"name": f"{name}_{format}", "format": format, "path": f"{catalog}.bronze.{name}_{format}", **more}
        for format, catalog in CATALOGS.items()
        for name, more in zip(NAMES, ({}, typed), strict=True)
    ]
    host = {"spark": "local[2]", "conf": settings(folder)}
    return Landing(MemoryStore(), folder, partitions=2, tables=declared, batch_of=orders, host=host)


def orders(tp: TP, start: int, stop: int) -> Batch:
    """Every seventh is no JSON."""
    batch = records(tp, start, stop)
    values = [b"?" if offset % 7 == 3 else b'{"id": %d}' % offset for offset in range(start, stop)]
    return Batch(batch.records.set_column(1, "value", pa.array(values, pa.binary())), batch.runs)


def right(spark: SparkSession, landing: Landing, upto: int) -> None:
    """Whether each table has exactly the offsets below this one, for whoever reads it by its name."""
    bad = sum(offset % 7 == 3 for offset in range(upto))
    for table in landing.config.tables:
        wanted = {"raw": upto, "typed": upto - bad}[table.name.split("_")[0]] if "dead" not in table.name else bad
        offset = "kafka_offset" if table.typed and "dead" not in table.name else "offset"
        found = spark.table(table.path).select(offset).collect()
        assert (len(found), len({row[0] for row in found})) == (2 * wanted, wanted), (table.name, upto)
        assert tables.look(spark, landing.region, table.name).clean, (table.name, upto)


def main(folder: Path) -> None:
    landing = landed(folder)
    names = [table.name for table in landing.config.tables if "dead" not in table.name]
    with session.open_session(landing.config, log=folder / "java.log") as spark:
        for catalog in CATALOGS.values():
            spark.sql(f"CREATE DATABASE IF NOT EXISTS {catalog}.bronze").collect()

        def advance() -> None:
            landing.land(10)
            for name in names:
                tables.advance(spark, landing.region, name)

        for _ in range(3):
            advance()
        right(spark, landing, 30)
        landing.rewind(2)
        tables.fence_all(spark, landing.region)
        right(spark, landing, 20)
        advance()
        for name in names:
            table = landing.config.table(name)
            assert table is not None
            column = "kafka_offset" if table.typed else "offset"
            spark.sql(f"DELETE FROM {table.path} WHERE {column} < 5").collect()
            assert not tables.look(spark, landing.region, name).clean, name
            tables.mend(spark, landing.region, name)
            tables.maintain(spark, landing.region, name)
        right(spark, landing, 30)
        advance()
        right(spark, landing, 40)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
