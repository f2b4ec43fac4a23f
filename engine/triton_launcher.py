"""Kernel launches from Python, for a Triton that compiles C for the argument types of each kernel.

Triton 3.6 writes a launcher in C for every signature that it meets, and compiles it. None of them
can be made ahead, for which signatures there are depends on the model; so a build for users, whose
machines need no compiler, calls the driver's ``cuLaunchKernelEx`` through ctypes. From Triton 3.7
on the one module that a build ships launches every kernel, and nothing of this file is used.

Numbers and layouts of the driver's are those of ``cuda.h``; they are part of its binary interface.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from engine.kernel_parameters import CONSTANT, POINTER, Field, field_of, flat

LIBRARY = "libcuda.so.1"

_INVALID_VALUE = 1  # CUresult
_DEVICE_POINTER = 3  # CUpointer_attribute
_NON_PORTABLE_CLUSTERS = 14  # CUfunction_attribute
_COOPERATIVE, _CLUSTER_SIZE, _CLUSTER_SCHEDULING, _PDL = 2, 4, 5, 6  # CUlaunchAttributeID
_SPREAD = 1  # CUclusterSchedulingPolicy
_MOST_PORTABLE_CTAS = 8
_WARP = 32

# CUlaunchConfig: grid, block, bytes of shared memory, stream, attributes, their number.
_CONFIG = "<7I4xQQI4x"
# CUlaunchAttribute: which one, and its value: up to three numbers of the 64 bytes.
_ATTRIBUTE = struct.Struct("<I4x3I52x")
_SLOT = 8
"""Bytes that a parameter gets: those of the largest type."""


def use_python_launchers(backend: Any) -> None:
    """Has ``triton.backends.nvidia.driver`` launch through this file where it would compile C.

    A version without a launcher for each signature stays as it is; so does one the second time.
    """
    if getattr(backend, "make_launcher", make_launcher) is make_launcher:
        return
    backend.make_launcher = make_launcher
    backend.compile_module_from_src = functools.partial(_module, backend.compile_module_from_src)


def make_launcher(
    constants: object, signature: dict[Any, Any], tensor_descriptors: object
) -> KernelLauncher:
    """In place of Triton's function of this name, which returns a source in C.

    Args:
        constants: not needed, the signature tells which arguments are constant.
        signature: by argument its type, ``"constexpr"``, or a tuple of such.
        tensor_descriptors: not needed, there may be none.

    Raises:
        NotImplementedError: an argument is of a type that cannot be passed, which is told.
        OSError: there is no driver.
    """
    return KernelLauncher(list(signature.values()), _driver())


def _module(compile_module: Callable[..., Any], src: Any, name: str, **more: Any) -> Any:
    """What Triton loads as a module: a launcher is one already, all else is compiled as ever."""
    if isinstance(src, KernelLauncher):
        return src
    return compile_module(src=src, name=name, **more)


@functools.cache
def _driver() -> Driver:
    return Driver(LIBRARY)


class Driver:
    """The functions of the NVIDIA driver that a launch takes.

    Raises:
        OSError: the library is not there.
        AttributeError: it is older than CUDA 11.8 and has no ``cuLaunchKernelEx``.
    """

    def __init__(self, library: str) -> None:
        # They return at once: letting go of the interpreter would take longer than they do.
        quick = ctypes.PyDLL(library)
        self._get_context = quick.cuCtxGetCurrent
        self._set_context = quick.cuCtxSetCurrent
        self._get_device = quick.cuDeviceGet
        self._retain_context = quick.cuDevicePrimaryCtxRetain
        self._error_name = quick.cuGetErrorName
        self._error_text = quick.cuGetErrorString
        self.pointer_attribute = quick.cuPointerGetAttribute
        self._set_function_attribute = quick.cuFuncSetAttribute
        # It waits where too many launches are under way.
        self.launch = ctypes.CDLL(library).cuLaunchKernelEx
        self.launch.argtypes = (ctypes.c_void_p,) * 4

    def ensure_context(self) -> None:
        """Gives a thread that has no context yet the first device's."""
        context = ctypes.c_void_p()
        self.check(self._get_context(ctypes.byref(context)))
        if context.value is None:
            device = ctypes.c_int()
            self.check(self._get_device(ctypes.byref(device), 0))
            self.check(self._retain_context(ctypes.byref(context), device))
            self.check(self._set_context(context))

    def allow_large_clusters(self, function: int) -> None:
        """For a kernel with clusters of a size that not every device has."""
        self.check(
            self._set_function_attribute(ctypes.c_void_p(function), _NON_PORTABLE_CLUSTERS, 1)
        )

    def check(self, status: int) -> None:
        """Tells what went wrong, as Triton does.

        Raises:
            RuntimeError: ``status`` is that of an error.
        """
        if status == 0:
            return
        text, name = ctypes.c_char_p(), ctypes.c_char_p()
        self._error_text(status, ctypes.byref(text))
        self._error_name(status, ctypes.byref(name))
        told = (text.value or b"unknown error").decode(errors="replace")
        named = (name.value or str(status).encode()).decode(errors="replace")
        raise RuntimeError(f"Triton Error [CUDA]: {told} ({named})")


class _Storage:
    """The memory of one launch: its configuration, then a slot for each parameter."""

    def __init__(self, size: int, fields: Sequence[Field]) -> None:
        self.memory = (ctypes.c_uint64 * (size // _SLOT))()
        self.config = ctypes.addressof(self.memory)
        first = self.config + struct.calcsize(_CONFIG)
        places = [first + _SLOT * number + field.shift for number, field in enumerate(fields)]
        self._places = (ctypes.c_void_p * len(places))(*places)
        self.parameters = ctypes.addressof(self._places)
        self.pointers = []
        """(number, its slot, a reference to its slot) of each parameter that is a pointer."""
        for number, (field, place) in enumerate(zip(fields, places, strict=True)):
            if field is POINTER:
                slot = ctypes.c_uint64.from_address(place)
                self.pointers.append((number, slot, ctypes.byref(slot)))


class KernelLauncher:
    """Launches kernels of one signature; any number of threads at once.

    Args:
        signature: as ``make_launcher`` has it, in order.
        driver: what launches.

    Raises:
        NotImplementedError: an argument is of a type that cannot be passed.
    """

    def __init__(self, signature: Sequence[Any], driver: Driver) -> None:
        kinds = list(flat(signature, signature))
        self._signature = signature
        self._is_nested = any(isinstance(kind, tuple) for kind in signature)
        self._is_taken = [kind != CONSTANT for kind in kinds]
        # Every kernel has two more parameters: memory that it may need, and a profiler's.
        taken = itertools.compress(kinds, self._is_taken)
        self._fields = [*map(field_of, taken), POINTER, POINTER]
        self._converters = [field.convert for field in self._fields]
        self._struct = struct.Struct(_CONFIG + "".join(field.code for field in self._fields))
        self._driver = driver
        self._free: list[_Storage] = []

    def launch(
        self,
        grid_x: int,
        grid_y: int,
        grid_z: int,
        stream: int,
        function: int,
        cooperative: bool,
        pdl: bool,
        global_scratch: Any,
        profile_scratch: Any,
        kernel_metadata: tuple[int, int, int],
        launch_metadata: object,
        enter_hook: Callable[[object], object] | None,
        exit_hook: Callable[[object], object] | None,
        *arguments: Any,
    ) -> None:
        """Launches a kernel, unless the grid is empty.

        Args:
            grid_x, grid_y, grid_z: programs; where blocks form clusters, a cluster is one.
            stream, function: of the driver.
            cooperative: all thread blocks run at once, so that they may wait for each other.
            pdl: may start before the kernel before has ended.
            global_scratch, profile_scratch: something with ``data_ptr()``, an address or None.
            kernel_metadata: warps a block, blocks a cluster, bytes of shared memory.
            launch_metadata: for the hooks, which are called before and after.
            arguments: the kernel's, constant ones too.

        Raises:
            RuntimeError: the driver refuses, in its words.
            TypeError, OverflowError: arguments do not fit their types.
            ValueError: a tensor lies where the device cannot reach it.
        """
        driver = self._driver
        driver.ensure_context()
        if enter_hook is not None:
            enter_hook(launch_metadata)
        if grid_x * grid_y * grid_z > 0:
            num_warps, num_ctas, shared = kernel_metadata
            if num_ctas > _MOST_PORTABLE_CTAS:
                driver.allow_large_clusters(function)
            attributes, count = _attributes(cooperative, pdl, num_ctas)
            grid, block = (grid_x * num_ctas, grid_y, grid_z), (_WARP * num_warps, 1, 1)
            config = (*grid, *block, shared, stream, ctypes.addressof(attributes), count)
            storage = self._filled(
                config, [*self._parameters(arguments), global_scratch, profile_scratch]
            )
            status = driver.launch(storage.config, function, storage.parameters, None)
            self._free.append(storage)
            driver.check(status)
        if exit_hook is not None:
            exit_hook(launch_metadata)

    def _parameters(self, arguments: tuple[Any, ...]) -> Iterable[Any]:
        """Those arguments that the kernel takes."""
        if self._is_nested:
            arguments = tuple(flat(self._signature, arguments))
        if len(arguments) != len(self._is_taken):
            raise TypeError(
                f"a kernel takes {len(self._is_taken)} arguments, and gets {len(arguments)}"
            )
        return itertools.compress(arguments, self._is_taken)

    def _filled(self, config: tuple[int, ...], parameters: list[Any]) -> _Storage:
        """Memory with all that a launch needs; nobody else uses it until it is free again."""
        values = [
            value if convert is None else convert(value)
            for value, convert in zip(parameters, self._converters, strict=True)
        ]
        try:
            storage = self._free.pop()
        except IndexError:
            storage = _Storage(self._struct.size, self._fields)
        try:
            self._struct.pack_into(storage.memory, 0, *config, *values)
        except struct.error as error:
            raise TypeError(f"an argument of a kernel does not fit its type: {error}") from None
        # A tensor's address is replaced by that which the device has for it.
        translate = self._driver.pointer_attribute
        for number, slot, place in storage.pointers:
            if values[number] and not isinstance(parameters[number], int):
                status = translate(place, _DEVICE_POINTER, slot)
                if status == _INVALID_VALUE:
                    raise ValueError(
                        f"parameter {number} of a kernel lies where the device cannot reach it: "
                        "is it a tensor on the CPU?"
                    )
                if status:
                    self._driver.check(status)
        return storage


@functools.cache
def _attributes(cooperative: bool, pdl: bool, num_ctas: int) -> tuple[ctypes.Array[Any], int]:
    """The launch attributes, as the driver reads them, and how many they are."""
    wanted: list[tuple[int, ...]] = []
    if pdl:
        wanted.append((_PDL, 1, 0, 0))
    if cooperative:
        wanted.append((_COOPERATIVE, 1, 0, 0))
    if num_ctas != 1:
        wanted += [(_CLUSTER_SIZE, num_ctas, 1, 1), (_CLUSTER_SCHEDULING, _SPREAD, 0, 0)]
    packed = b"".join(_ATTRIBUTE.pack(*attribute) for attribute in wanted)
    return (ctypes.c_uint64 * (len(packed) // 8)).from_buffer_copy(packed), len(wanted)
