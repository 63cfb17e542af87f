"""Assets of a region: topics and group as they are seen, records as they are landed, tables as they keep up (SPEC A3, A4)."""
