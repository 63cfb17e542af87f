"""Avro in the wire format of a schema registry becomes a typed table, without a line of code."""
