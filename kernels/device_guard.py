"""Triton launches on the current device: this makes it the tensors' own."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def on_device_of(tensor: Tensor) -> AbstractContextManager[object]:
    """A context in which kernels run where the tensor lies. Nothing to do on the CPU."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()
