"""One member of the group: threads that feed the state machine and carry out its effects (SPEC M1-M9).

| thread | what it does |
|---|---|
| event (`event_loop.py`) | owns the Kafka consumer and the state machine: polls, seeks, commits |
| process (`submitter.py`) | holds the permit: writes tuples to the open segment, then records offsets |
| reporter (`reporter.py`) | carries the machine's SQL effects out, in order, through outages |
| resolver (`resolver.py`) | finds where partitions start: SQL, then Kafka's admin calls |
| observer (`observer.py`) | reads the desired state whenever it changes; does what anyone may do |
| watchdog (`watchdog.py`) | renews the lease while the others make progress; ends a process that hangs |
"""
