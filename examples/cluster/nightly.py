"""A bounded run on the cluster, as a scheduler starts it each night: `python nightly.py region.yaml`.

`crkafka -c region.yaml host` runs the same region all the time instead. The driver's and the workers' Python have
`crkafka[postgres,s3,delta]`.
"""

from __future__ import annotations

import sys

from crkafka import Region, RegionConfig, consume, hosted, initialise, open_session, tables


def nightly(config: RegionConfig) -> int:
    """All that Kafka has now goes into one checkpoint and into the tables; the rows of the bronze one."""
    initialise(config.resolved_control_plane())
    spark = open_session(config)
    try:
        with Region.open(config) as region:
            region.init()
            with hosted(region, spark):
                region.start()
                consume(region)
                region.stop()
            for table in config.tables:
                tables.advance(spark, region, table.name)
            return int(tables.read_table(spark, region, "bronze").count())
    finally:
        spark.stop()


if __name__ == "__main__":
    print(f"records in bronze: {nightly(RegionConfig.load(sys.argv[1])):,}")
