"""Spark's side: members as tasks, checkpoints as DataFrames, tables, and the data source (SPEC K1-K7).

| file | |
|---|---|
| `session.py`, `launch.py`, `host.py`, `feeder.py` | a session for a region, members as its tasks, tables that a host keeps fresh |
| `frames.py`, `segment_files.py`, `kafka_ranges.py`, `work.py` | checkpoints as DataFrames, from segments or from Kafka again |
| `source.py` | `format("crkafka")` |
| `decode.py`, `decoders.py`, `decode_batch.py`, `registry.py` | typed records from raw ones, and a schema registry |
| `tables.py` | what programs call: advance, rewrite, mend, and the names of the rest |
| `commit.py`, `fencing.py`, `maintain.py` | one commit of rows; following a rewind; compaction |
| `table_reader.py`, `audit.py` | the rows that count, and whether they are what was merged |
| `table_format.py`, `formats.py`, `delta_table.py`, `iceberg_table.py` | what a format has to offer, and which one a table has |
| `shaped_write.py`, `shapes.py`, `upsert.py`, `keys.py` | tables of one shape, written together; one row for each key |
"""
