"""Spark's side: members as tasks, checkpoints as DataFrames, tables, and the data source (SPEC K1-K7).

| file | |
|---|---|
| `session.py`, `launch.py`, `host.py`, `feeder.py` | a session for a region, members as its tasks, tables that a host keeps fresh |
| `frames.py`, `segment_files.py`, `kafka_ranges.py`, `work.py` | checkpoints as DataFrames, from segments or from Kafka again |
| `source.py` | `format("crkafka")` |
| `decode.py`, `decoders.py`, `decode_batch.py`, `registry.py` | typed records from raw ones, and a schema registry |
| `tables.py`, `erasing.py` | what programs call: advance, rewrite, mend and so on; records that leave every table |
| `frame_shape.py` | rows of tables by a user's function on DataFrames |
| `table_reader.py` | the rows of a table that count |
"""
