"""Hosts: who starts members, watches them and starts them anew."""
