"""Ops, each thin over `crkafka_core.region`; each can be repeated, and finds what an earlier attempt of its run began (SPEC A1)."""
