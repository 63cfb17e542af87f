"""Hosts start members, watch them, and restart them."""
