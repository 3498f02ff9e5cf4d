"""Environments of users: packages on top of a container."""
