"""What tests of this project, and of its users, are built from: services, brokers, generators, the oracle."""
