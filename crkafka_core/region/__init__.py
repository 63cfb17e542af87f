"""What drives a region: open, cut, reset, start, stop, retire, watch; written against the control plane, for any driver."""

from crkafka_core.region.region import Region

__all__ = ["Region"]
