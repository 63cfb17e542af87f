"""One file per version of the schema; written by `checkpoints_db.migrations.write`, then frozen."""
