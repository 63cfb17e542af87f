"""Private names of Dagster, by who needs them; nobody else imports any.

Where a release of Dagster has renamed one, only what is behind that module fails (tests/dagster/test_launcher.py looks at each).
"""
