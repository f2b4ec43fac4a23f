"""A library in place of NVIDIA's driver that keeps what it is asked to launch."""

from __future__ import annotations

import ctypes
import importlib.util
import subprocess
from pathlib import Path

DRIVER = "libcuda.so.1"
MOST = 64
SIZES = {"1": 1, "8": 1, "16": 2, "32": 4, "64": 8}


class Record(ctypes.Structure):
    """What has been launched last, and how often; see recording_driver.c."""

    _fields_ = (
        ("launches", ctypes.c_uint),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("num_attributes", ctypes.c_uint),
        ("attributes", ctypes.c_uint * 4 * 4),
        ("torn", ctypes.c_uint),
        ("contexts_set", ctypes.c_uint),
        ("stream", ctypes.c_uint64),
        ("function", ctypes.c_uint64),
        ("large_clusters", ctypes.c_uint64),
        ("parameters", ctypes.c_ubyte * 8 * MOST),
        ("history", ctypes.c_uint64 * 1024),
    )


class Orders(ctypes.Structure):
    """How the library answers."""

    _fields_ = (
        ("launch_status", ctypes.c_uint),
        ("context_status", ctypes.c_uint),
        ("delay_us", ctypes.c_uint),
        ("num_parameters", ctypes.c_uint),
        ("unreachable", ctypes.c_uint64),
        ("mapped", ctypes.c_uint64),
        ("mapped_to", ctypes.c_uint64),
        ("sizes", ctypes.c_ubyte * MOST),
    )


class RecordingDriver:
    """The library at ``path``; for kernels that take parameters of some types."""

    def __init__(self, path: Path) -> None:
        self.path = path
        library = ctypes.CDLL(str(path))
        self.record = Record.in_dll(library, "record")
        self.orders = Orders.in_dll(library, "orders")
        self.begin_anew([])

    def begin_anew(self, kinds: list[str]) -> None:
        """Forgets all. ``kinds``: what the kernel takes, without the two pointers at the end."""
        ctypes.memset(ctypes.addressof(self.record), 0, ctypes.sizeof(Record))
        ctypes.memset(ctypes.addressof(self.orders), 0, ctypes.sizeof(Orders))
        for number, kind in enumerate([*kinds, "*", "*"]):
            self.orders.sizes[number] = 8 if "*" in kind else SIZES[kind.strip("fpbiu")]
        self.orders.num_parameters = len(kinds) + 2
        self.orders.unreachable = (1 << 64) - 1

    def parameter(self, number: int) -> int:
        """The bits of a parameter."""
        return int.from_bytes(bytes(self.record.parameters[number]), "little")

    def attributes(self) -> list[tuple[int, ...]]:
        """(which one, three numbers) of each launch attribute."""
        return [tuple(values) for values in self.record.attributes][: self.record.num_attributes]


def make_library(folder: Path) -> Path:
    """Compiles it with gcc, against the header of the driver that comes with Triton."""
    found = importlib.util.find_spec("triton")
    assert found is not None
    assert found.origin is not None
    include = Path(found.origin).parent / "backends" / "nvidia" / "include"
    source, library = Path(__file__).with_suffix(".c"), folder / DRIVER
    command = ["gcc", "-shared", "-fPIC", "-O1", f"-Wl,-soname,{DRIVER}", f"-I{include}"]
    subprocess.check_call([*command, "-o", str(library), str(source)])
    return library
