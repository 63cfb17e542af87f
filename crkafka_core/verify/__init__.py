"""The oracle: reads back what a region landed and checks every invariant (I1 … I13) against its own account of the truth.

`verify(region)` compares with Kafka itself; `verify(region, ledger)` with what a `Generator` really committed.
"""

from crkafka_core.verify.verdict import Finding, Remembered, Verdict
from crkafka_core.verify.verify import verify

__all__ = ["Finding", "Remembered", "Verdict", "verify"]
