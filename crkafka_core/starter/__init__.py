"""The files of a starter project, which `crkafka new` copies: run as they are, and checked as code of ours."""
