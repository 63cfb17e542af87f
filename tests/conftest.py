"""What all tests share: real services as fixtures."""

pytest_plugins = ["crkafka_core.testing.pytest_services", "crkafka_core.testing.pytest_scenarios"]
