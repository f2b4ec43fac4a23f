"""The access token: in the system's keyring, or for this session where there is none. Qt-free.

A keyring may ask the user to unlock it, so nothing here is for the window's thread but ``token``
and ``place``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from enum import StrEnum
from typing import Protocol, cast

_LOG = logging.getLogger(__name__)
SERVICE = "Quire"
# Backends that forget at once, or that write plain text.
_UNFIT_MODULES = ("keyring.backends.fail", "keyring.backends.null", "keyrings.alt")


class Place(StrEnum):
    """Where the token is. ``SESSION``: in memory only, gone when the program ends."""

    NOWHERE = "nowhere"
    KEYRING = "keyring"
    SESSION = "session"


class Keyring(Protocol):
    """The part of a keyring backend that is used."""

    def get_password(self, service: str, username: str) -> str | None: ...

    def set_password(self, service: str, username: str, password: str) -> None: ...

    def delete_password(self, service: str, username: str) -> None: ...


def system_keyring() -> Keyring | None:
    """The keyring of this desktop; None if there is none, or only one that does not protect."""
    try:
        import keyring

        backend = keyring.get_keyring()
    except Exception as error:  # a backend may fail in any way while it looks for its service
        _LOG.info("no keyring: %s", type(error).__name__)
        return None
    # A chain would go on to the next of its keyrings where a good one is locked.
    for candidate in getattr(backend, "backends", (backend,)):
        if not type(candidate).__module__.startswith(_UNFIT_MODULES):
            return cast(Keyring, candidate)
    _LOG.info("no keyring: %s", type(backend).__module__)
    return None


class TokenStore:
    """The token of one hub. ``find``: finds the keyring, on the thread that needs it."""

    def __init__(self, host: str, find: Callable[[], Keyring | None] = system_keyring) -> None:
        self._host = host
        self._find = find
        self._lock = threading.Lock()
        self._token = ""
        self._place = Place.NOWHERE
        self._is_loaded = False
        self.failed = False
        """Whether the keyring failed the last time that it was needed."""

    def __repr__(self) -> str:
        return f"TokenStore({self._host!r}, {self._place})"

    def token(self) -> str:
        """The token, or empty. Reads the keyring the first time."""
        with self._lock:
            if not self._is_loaded:
                self._is_loaded = True
                self._load()
            return self._token

    @property
    def place(self) -> Place:
        """Where the token is, as far as it has been looked for."""
        return self._place

    def set(self, token: str) -> Place:
        """Keeps ``token`` instead of the one before; empty deletes it. Returns where it is."""
        token = token.strip()
        with self._lock:
            self._is_loaded = True
            self._token = token
            self._place = Place.SESSION if token else Place.NOWHERE
            self.failed = False
            try:
                keyring = self._find()
                if keyring is not None and self._store(keyring, token):
                    self._place = Place.KEYRING
            except Exception as error:  # locked, refused by the user, its service gone
                # Not its text: nobody knows what a backend puts into it.
                self.failed = True
                _LOG.warning("the keyring failed: %s", type(error).__name__)
            return self._place

    def _store(self, keyring: Keyring, token: str) -> bool:
        """Whether the keyring has it now. Some take everything and keep nothing."""
        if token:
            keyring.set_password(SERVICE, self._host, token)
            return keyring.get_password(SERVICE, self._host) == token
        if keyring.get_password(SERVICE, self._host) is not None:
            keyring.delete_password(SERVICE, self._host)
        return False

    def _load(self) -> None:
        try:
            keyring = self._find()
            found = keyring.get_password(SERVICE, self._host) if keyring is not None else None
        except Exception as error:  # as in ``set``
            self.failed = True
            _LOG.warning("the keyring failed: %s", type(error).__name__)
            return
        if found:
            self._token, self._place = found, Place.KEYRING
