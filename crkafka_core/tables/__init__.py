"""A Delta table's log and what our commits leave in it, for `verify`, which reads tables by code of its own (SPEC K6).

| file | |
|---|---|
| `stamp.py`, `others.py` | what each commit of ours carries inside a table; commits of others between them |
| `log.py`, `delta_log.py` | a table's files, and a Delta table's log |
"""
