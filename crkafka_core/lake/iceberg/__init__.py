"""Iceberg behind the port, without Java: own manifests, committed by put-if-absent at a path or through a catalog."""
