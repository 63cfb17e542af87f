"""Operations on a region (open, cut, reset, start, stop, retire, watch) through its control plane, for any driver."""

from crkafka_core.region.region import Region

__all__ = ["Region"]
