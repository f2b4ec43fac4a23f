"""The settings file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.settings import Settings, Values
from engine.api.errors import InvalidValueError
from engine.api.params import EngineConfig, SamplingParams


def test_settings_survive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "張 庭" / "settings.json"
    sampling = SamplingParams(temperature=0.2, stop=("END",), seed=2**64 - 1)
    Settings(path).change(theme="dark", sampling=sampling, engine=EngineConfig(num_blocks=99))
    values = Settings(path).values
    assert (values.theme, values.sampling, values.engine.num_blocks) == ("dark", sampling, 99)


def test_only_what_differs_from_the_defaults_is_written(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    Settings(path).change(theme="dark", sampling=SamplingParams(temperature=0.0))
    assert json.loads(path.read_text("utf-8")) == {
        "theme": "dark",
        "sampling": {"temperature": 0.0},
    }


def test_names_of_other_engines_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text('{"engine": {"max_num_seqs": 3, "max_num_batched_tokens": 77}}', "utf-8")
    engine = Settings(path).values.engine
    assert (engine.max_running_requests, engine.token_budget) == (3, 77)


@pytest.mark.parametrize(
    ("stored", "name"),
    [
        ({"colour": "red"}, "colour"),
        ({"theme": "pink"}, "theme"),
        ({"theme": 3}, "theme"),
        ({"cache_panel_visible": "yes"}, "cache_panel_visible"),
        ({"model_path": None}, "model_path"),
        ({"sampling": {"temperature": -1}}, "sampling"),
        ({"sampling": {"temperature": "hot"}}, "sampling"),
        ({"sampling": {"heat": 1}}, "sampling"),
        ({"sampling": {"stop": 3}}, "sampling"),
        ({"sampling": []}, "sampling"),
        ({"engine": {"block_size": 7}}, "engine"),
        ({"engine": {"blocks": 7}}, "engine"),
    ],
)
def test_a_bad_value_is_reported_unused_and_kept(
    tmp_path: Path, stored: dict[str, object], name: str
) -> None:
    path = tmp_path / "settings.json"
    path.write_text(json.dumps(stored | {"language": "en"}), "utf-8")
    settings = Settings(path)
    assert settings.values == Values(language="en")
    assert [dict(problem.numbers)["name"] for problem in settings.problems] == [name]
    settings.change(model_path="x") if name != "model_path" else settings.change(theme="dark")
    assert json.loads(path.read_text("utf-8"))[name] == stored[name]


def test_a_correct_value_replaces_a_bad_one(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text('{"theme": "pink"}', "utf-8")
    Settings(path).change(theme="light")
    assert json.loads(path.read_text("utf-8")) == {"theme": "light"}


@pytest.mark.parametrize("text", ["", "{", "[1]", "\x00\xff"])
def test_a_damaged_file_is_kept_and_reported(tmp_path: Path, text: str) -> None:
    path = tmp_path / "settings.json"
    path.write_text(text, "utf-8")
    settings = Settings(path)
    assert settings.values == Values()
    assert [problem.code for problem in settings.problems] == ["settings_unreadable"]
    assert (tmp_path / "settings.damaged.json").read_text("utf-8") == text


def test_an_unknown_name_cannot_be_set(tmp_path: Path) -> None:
    settings = Settings(tmp_path / "settings.json")
    with pytest.raises(InvalidValueError, match="there is no such setting"):
        settings.change(colour="red")


def test_a_value_out_of_range_changes_nothing(tmp_path: Path) -> None:
    settings = Settings(tmp_path / "settings.json")
    with pytest.raises(InvalidValueError, match="theme"):
        settings.change(language="en", theme="pink")
    assert settings.values == Values()
    assert not (tmp_path / "settings.json").exists()


def test_settings_without_a_file_hold_for_the_run() -> None:
    settings = Settings(None)
    settings.change(theme="dark")
    assert settings.values.theme == "dark"
