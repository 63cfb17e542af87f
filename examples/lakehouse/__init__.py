"""Orders → bronze → silver with dead letters → daily revenue, in Dagster."""
