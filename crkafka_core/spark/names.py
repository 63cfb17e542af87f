"""Names that code in executors and code in the driver share; imports nothing of Spark."""

CHECKPOINT = "crkafka_checkpoint"
"""The added column: which checkpoint a row belongs to (SPEC K6)."""
VALUE, DECODED_KEY, REASON = "crkafka_decoded", "crkafka_decoded_key", "reason"
"""The columns that decoding adds: two structs, and why a record could not be decoded."""
