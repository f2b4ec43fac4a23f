"""What a frozen program has to put right before anything else. Qt-free."""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping, Sequence

_VARIABLE = "LD_LIBRARY_PATH"
_BEFORE = "LD_LIBRARY_PATH_ORIG"
_CERTIFICATES = "SSL_CERT_FILE"
# Debian and Ubuntu, Fedora, openSUSE, Alpine and Arch.
_CERTIFICATE_FILES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def is_frozen() -> bool:
    """Whether this is a build for users, which carries all that it needs."""
    return bool(getattr(sys, "frozen", False))


def restore_library_path(environ: MutableMapping[str, str]) -> None:
    """Gives child processes the library path that the user had; nothing where none was changed.

    The bootloader points the variable to the program's own libraries. The dynamic linker has read
    it by now; a browser or a mail program that is started from here must not.
    """
    before = environ.pop(_BEFORE, None)
    if before is not None:
        environ[_VARIABLE] = before
    elif _is_ours(environ.get(_VARIABLE, "")):
        del environ[_VARIABLE]


def _is_ours(value: str) -> bool:
    return bool(value) and value == getattr(sys, "_MEIPASS", None)


def trust_the_system(environ: MutableMapping[str, str], files: Sequence[str] = ()) -> None:
    """Names the certificates of this system, which the bundled OpenSSL seeks where it was built.

    ``files``: where they may be; the first that is there is taken. What the user has set stays.
    """
    if sys.platform != "linux" or not is_frozen() or _CERTIFICATES in environ:
        return
    for file in files or _CERTIFICATE_FILES:
        if os.path.exists(file):
            environ[_CERTIFICATES] = file
            return
