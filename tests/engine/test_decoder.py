"""Building the decoder from weights: names, shapes and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from engine.api.errors import DeviceError, ModelFileError, NotSupportedYetError
from engine.api.errors import UnsupportedModelError as Unsupported
from engine.devices import resolve_device, resolve_dtype
from engine.model_runner import build_runner
from engine.models.config import ModelConfig
from engine.models.decoder import Decoder
from tests.helpers.tiny_model import tiny_llama

CPU = torch.device("cpu")


def decoder(config: ModelConfig, weights: Any) -> Decoder:
    return Decoder(config, weights, torch.float32, CPU, 64)


def test_weights_may_come_in_any_order() -> None:
    tiny = tiny_llama()
    weights = list(tiny.weights())
    built = decoder(tiny.config, weights[::-1])
    assert built.weights_bytes > 0


def test_tied_output_is_ignored_in_the_file() -> None:
    tiny = tiny_llama()
    assert any(name == "lm_head.weight" for name, _ in tiny.weights())
    decoder(tiny.config, tiny.weights())
    decoder(tiny.config, [(n, t) for n, t in tiny.weights() if n != "lm_head.weight"])


def test_missing_weight_is_named() -> None:
    tiny = tiny_llama()
    name = "model.layers.1.mlp.up_proj.weight"
    weights = [(n, t) for n, t in tiny.weights() if n != name]
    with pytest.raises(ModelFileError, match=name):
        decoder(tiny.config, weights)


def test_wrong_shape_is_named() -> None:
    tiny = tiny_llama()
    config = replace(tiny.config, intermediate_size=95)
    with pytest.raises(ModelFileError, match=r"mlp\.(gate|up)_proj.*\(96, 48\).*\(95, 48\)"):
        decoder(config, tiny.weights())


def test_unknown_weight_is_named() -> None:
    tiny = tiny_llama()
    weights = [*tiny.weights(), ("model.layers.0.self_attn.extra.weight", torch.zeros(1))]
    with pytest.raises(ModelFileError, match=r"extra\.weight"):
        decoder(tiny.config, weights)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"architecture": "MambaForCausalLM"}, "MambaForCausalLM"),
        ({"rope_scaling": (("rope_type", "dynamic"), ("factor", 4.0))}, "rope_type dynamic"),
        ({"activation": "relu"}, "activation relu"),
    ],
)
def test_unsupported_models_are_refused_before_reading(change: dict[str, Any], named: str) -> None:
    tiny = tiny_llama()

    def unread() -> Any:
        raise AssertionError("weights were read")
        yield

    with pytest.raises(Unsupported, match=named):
        decoder(replace(tiny.config, **change), unread())


def test_weights_are_copied_from_the_file() -> None:
    """The file may be a mapping that is closed or replaced later."""
    tiny = tiny_llama()
    weights = {name: tensor.clone() for name, tensor in tiny.weights()}
    runner = build_runner(
        tiny.config, weights.items(), num_blocks=4, max_model_len=32, dtype="float32"
    )
    for tensor in weights.values():
        tensor.fill_(float("nan"))
    assert all(bool(t.isfinite().all()) for t in tensors_of(runner.decoder))


def tensors_of(value: Any, depth: int = 0) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [t for part in value for t in tensors_of(part, depth)]
    names = [*getattr(value, "__dict__", {}), *getattr(value, "__slots__", ())]
    if depth > 4 or not type(value).__module__.startswith("engine"):
        return []
    return [t for name in names for t in tensors_of(getattr(value, name), depth + 1)]


def test_devices_that_are_not_there() -> None:
    assert resolve_device("auto") == resolve_device("cpu") == CPU
    with pytest.raises(DeviceError, match="toaster"):
        resolve_device("toaster")
    if not torch.cuda.is_available():
        with pytest.raises(DeviceError, match="CUDA"):
            resolve_device("cuda")


def test_dtype_by_name() -> None:
    assert resolve_dtype("float64", CPU) == torch.float64
    assert resolve_dtype("auto", CPU) in (torch.bfloat16, torch.float32)


def test_unknown_backend() -> None:
    tiny = tiny_llama()
    with pytest.raises(NotSupportedYetError, match="warp"):
        build_runner(tiny.config, tiny.weights(), num_blocks=4, backend="warp")
