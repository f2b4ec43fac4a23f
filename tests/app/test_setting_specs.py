"""What may be typed for each setting, and what it means."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from app.setting_specs import SPECS, InvalidTextError, SettingSpec
from app.settings import Values
from engine.api.params import EngineConfig, SamplingParams

# Not for everybody: these stay in the file.
HIDDEN = {"sampling.ignore_eos", "sampling.logprobs", "engine.tensor_parallel_size"}
# A model's, chosen where models are.
HIDDEN |= {"engine.chat_template"}
ELSEWHERE = {"default_system_prompt", "model_path", "cache_panel_visible", "shortcuts"}


def spec(path: str) -> SettingSpec:
    return next(spec for spec in SPECS if spec.path == path)


def value_of(values: Values, path: str) -> Any:
    found: Any = values
    for part in path.split("."):
        found = getattr(found, part)
    return found


def test_every_setting_is_in_the_window_or_left_out_on_purpose() -> None:
    groups = {"sampling": SamplingParams, "engine": EngineConfig}
    known = {f.name for f in fields(Values)} - groups.keys() - ELSEWHERE
    for group, kind in groups.items():
        known |= {f"{group}.{f.name}" for f in fields(kind)}
    assert {spec.path for spec in SPECS} == known - HIDDEN


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.path)
def test_defaults_survive_being_shown_and_read(spec: SettingSpec) -> None:
    default = value_of(Values(), spec.path)
    assert spec.parse(spec.show(default)) == default


@pytest.mark.parametrize(
    ("path", "text", "value"),
    [
        ("sampling.temperature", "0.25", 0.25),
        ("sampling.temperature", " 1 ", 1.0),
        ("sampling.seed", "18446744073709551615", 2**64 - 1),
        ("sampling.seed", "", None),
        ("sampling.stop", "END\n\\n\\n\nC:\\\\new", ("END", "\n\n", "C:\\new")),
        ("sampling.stop", "", ()),
        ("engine.token_budget", "2,048", 2048),
        ("engine.watermark", "5 %", 0.05),
        ("engine.watermark", "5", 0.05),
        ("engine.gpu_memory_utilization", "100 %", 1.0),
        ("engine.kv_cache_bytes", "512 MB", 512 << 20),
        ("engine.kv_cache_bytes", "1.5 GiB", 3 << 29),
        ("engine.kv_cache_bytes", "", None),
        ("engine.prefix_caching", "false", False),
    ],
)
def test_texts_become_values(path: str, text: str, value: object) -> None:
    found = spec(path).parse(text)
    assert found == value
    assert type(found) is type(value)
    assert spec(path).parse(spec(path).show(found)) == found


@pytest.mark.parametrize(
    ("path", "text", "words"),
    [
        ("sampling.temperature", "hot", "“hot” is not a number."),
        ("sampling.temperature", "nan", "“nan” is not a number."),
        ("sampling.temperature", "", "“” is not a number."),
        ("sampling.temperature", "-1", "A number from 0 to 100."),
        ("sampling.top_p", "1.01", "A number from 0 to 1."),
        ("sampling.top_k", "1.5", "“1.5” is not a whole number."),
        ("sampling.repetition_penalty", "0", "A number above 0, up to 100."),
        ("sampling.max_tokens", "0", "A whole number from 1, or nothing."),
        ("sampling.seed", str(2**64), f"A whole number from 0 to {2**64 - 1:,}, or nothing."),
        ("engine.block_size", "7", "A whole number from 8 to 256."),
        ("engine.watermark", "100", "A number from 0 % to 99 %."),
        ("engine.kv_cache_bytes", "much", "“much” is not a size; write 512 MB or 4 GB."),
        ("engine.kv_cache_bytes", "1.2.3 GB", "“1.2.3 GB” is not a size; write 512 MB or 4 GB."),
        ("engine.kv_cache_bytes", "0", "A size such as 512 MB or 4 GB, or nothing."),
        ("font_size", "99", "A number from 7 to 24."),
    ],
)
def test_what_cannot_be_says_why(path: str, text: str, words: str) -> None:
    with pytest.raises(InvalidTextError) as refused:
        spec(path).parse(text)
    assert str(refused.value) == words


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.path)
def test_the_ends_of_every_range_are_values_of_the_settings(spec: SettingSpec) -> None:
    ends = [spec.low if not spec.above else None, spec.high]
    for end in ends:
        if end is None:
            continue
        value = spec.parse(spec.show(int(end) if spec.kind in ("whole", "bytes") else end))
        group, _, name = spec.path.rpartition(".")
        if group:
            value_of(
                replace(Values(), **{group: replace(getattr(Values(), group), **{name: value})}),
                spec.path,
            )
        else:
            replace(Values(), **{name: value})


@pytest.mark.parametrize("spec", [s for s in SPECS if s.choices], ids=lambda spec: spec.path)
def test_every_choice_is_a_value_of_the_settings(spec: SettingSpec) -> None:
    group, _, name = spec.path.rpartition(".")
    for choice in spec.choices:
        if group:
            replace(getattr(Values(), group), **{name: choice})
        else:
            replace(Values(), **{name: choice})
