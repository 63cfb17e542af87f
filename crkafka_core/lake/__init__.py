"""One way into a table: permit → files → one commit of the format's own log → acknowledged (SPEC K6)."""
