"""Declared tables without Spark: segments become data files by the format's own log (SPEC K6); `region/feeder.py` keeps them fresh.

| file | |
|---|---|
| `stamp.py` | what each commit of ours carries inside a table |
| `log.py` | what a format's log has to offer for that |
| `delta_log.py` | a Delta table's log: snapshots, and commits that count only on the very snapshot they were made for |
| `adopt.py` | advance, fence, mend a table of adopted files |
| `on_snapshot.py`, `last_commit.py` | whether a commit may be made on what is there; commits that SQL did not hear of |
| `content.py`, `places.py`, `leftover.py` | what belongs there, whose rows those in compacted files are, what has to leave |
| `audit.py` | what is there, compared with what SQL says |
| `maintain.py` | few large files of the many small ones of retired checkpoints |
"""
