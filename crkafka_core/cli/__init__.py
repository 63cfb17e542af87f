"""The command line: one file per group of verbs, each verb a plain function of the same name over a configuration."""
