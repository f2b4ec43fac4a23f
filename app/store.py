"""Conversations on disk: SQLite, one writer thread. Qt-free."""

from __future__ import annotations


class Store:
    """A profile's database."""
