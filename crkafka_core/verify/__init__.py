"""Verification: reads back the landed records of a region and checks every invariant (I1 … I13).

`verify.verify(region)` compares with Kafka itself; `verify.verify(region, ledger)` with what a `Generator` really committed. What the rows
of the control plane must say by themselves is in `chain`, for production, the simulation and the tests of the database.
"""
