"""The compliance suite: what every control plane must do, whatever it is built on. Shipped, for those who bring another database."""
