"""One file per version of the schema, which changes the tables of the version before; frozen once it is released."""
