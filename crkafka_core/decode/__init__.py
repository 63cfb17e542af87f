"""Bytes to Arrow by a schema: JSON, Avro, Protobuf; knows neither Spark nor regions."""
