"""Spark's side: members as tasks, checkpoints as DataFrames, rows of shapes on DataFrames, and the data source (SPEC K1-K7).

| file | |
|---|---|
| `session.py`, `launch.py`, `host.py`, `feeder.py` | a session for a region, members as its tasks, tables that a host keeps fresh |
| `frames.py`, `segment_files.py`, `work.py` | checkpoints as DataFrames, from segments or from Kafka again |
| `source.py` | `format("crkafka")` |
| `decode.py` | typed records from raw ones |
| `frame_shape.py` | a shape on DataFrames: Spark makes files, `lake` commits them |
| `tables.py` | verbs on tables: advance, rewrite, fence, look, mend, maintain, read |
"""
