"""Delta behind the port: its log is read and written here, without Spark; deltalake writes checkpoints of the log, and vacuums."""
