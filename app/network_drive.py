"""Whether a file lies on another machine. Qt-free."""

from __future__ import annotations

import os
import sys
from pathlib import Path, PurePosixPath, PureWindowsPath

_DRIVE_REMOTE = 4
"""What Windows answers for a letter that stands for a share."""
_MOUNTS = Path("/proc/self/mountinfo")
_NETWORK_FILE_SYSTEMS = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "ceph", "glusterfs", "lustre"),
        *("fuse.sshfs", "fuse.davfs", "fuse.davfs2", "davfs", "fuse.glusterfs", "fuse.rclone"),
        *("fuse.gvfsd-fuse", "fuse.kio-fuse"),
    }
)


def is_on_network(path: Path) -> bool:
    """Whether ``path``, which need not exist, lies on a network drive. False where unknown."""
    real = os.path.realpath(path)
    if sys.platform == "win32":
        drive = PureWindowsPath(real).drive
        return is_share(drive) or _drive_type(drive) == _DRIVE_REMOTE
    try:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return False
    return file_system_of(PurePosixPath(real), mounts) in _NETWORK_FILE_SYSTEMS


def is_share(drive: str) -> bool:
    """Whether ``drive`` names a share, as \\\\server\\name; \\\\?\\C: is a disk of this machine."""
    if drive.upper().startswith("\\\\?\\UNC\\"):
        return True
    return drive.startswith("\\\\") and not drive.startswith(("\\\\?\\", "\\\\.\\"))


def file_system_of(path: PurePosixPath, mounts: str) -> str:
    """The file system that holds ``path``. ``mounts``: the text of /proc/self/mountinfo."""
    found, longest = "", -1
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) < 5 or not after:
            continue
        # Blanks and the like are written as octal numbers.
        place = fields[4].encode("utf-8", "surrogateescape").decode("unicode_escape")
        place = place.encode("latin-1").decode("utf-8", "surrogateescape")
        length = len(PurePosixPath(place).parts)
        # Of two at one place the later hides the earlier.
        if path.is_relative_to(place) and length >= longest:
            found, longest = after.split(" ")[0], length
    return found


def _drive_type(drive: str) -> int:
    if sys.platform != "win32":
        return 0
    import ctypes

    return int(ctypes.windll.kernel32.GetDriveTypeW(f"{drive}\\"))
