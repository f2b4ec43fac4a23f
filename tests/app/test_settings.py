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
        ({"sampling": {"temperature": -1}}, "sampling.temperature"),
        ({"sampling": {"temperature": "hot"}}, "sampling.temperature"),
        ({"sampling": {"heat": 1}}, "sampling.heat"),
        ({"sampling": {"stop": 3}}, "sampling.stop"),
        ({"sampling": {"top_k": 1.5}}, "sampling.top_k"),
        ({"sampling": {"seed": True}}, "sampling.seed"),
        ({"font_size": 99}, "font_size"),
        ({"font_size": "large"}, "font_size"),
        ({"shortcuts": {"new_tab": "Ctrl+T"}}, "shortcuts"),
        ({"shortcuts": [1]}, "shortcuts"),
        ({"sampling": []}, "sampling"),
        ({"engine": {"block_size": 7}}, "engine.block_size"),
        ({"engine": {"blocks": 7}}, "engine.blocks"),
        ({"engine": {"prefix_caching": 1}}, "engine.prefix_caching"),
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
    group = name.partition(".")[0]
    assert json.loads(path.read_text("utf-8"))[group] == stored[group]


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


def test_one_bad_part_does_not_take_the_others_with_it(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    stored = {"engine": {"block_size": 32, "max_num_seqs": "many", "from_tomorrow": 1}}
    path.write_text(json.dumps(stored), "utf-8")
    settings = Settings(path)
    assert settings.values.engine == EngineConfig(block_size=32)
    names = [dict(problem.numbers)["name"] for problem in settings.problems]
    assert names == ["engine.max_num_seqs", "engine.from_tomorrow"]
    settings.change(engine=EngineConfig(block_size=64))
    assert json.loads(path.read_text("utf-8"))["engine"] == {
        "block_size": 64,
        "max_num_seqs": "many",
        "from_tomorrow": 1,
    }


def test_a_part_set_in_the_window_replaces_the_bad_one_under_its_other_name(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text('{"engine": {"max_num_seqs": "many", "from_tomorrow": 1}}', "utf-8")
    settings = Settings(path)
    settings.change(engine=EngineConfig(max_running_requests=5))
    assert json.loads(path.read_text("utf-8"))["engine"] == {
        "max_running_requests": 5,
        "from_tomorrow": 1,
    }


def test_one_setting_under_two_names_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text('{"engine": {"max_running_requests": 3, "max_num_seqs": 4}}', "utf-8")
    settings = Settings(path)
    assert settings.values.engine.max_running_requests == 3
    assert "given twice" in settings.problems[0].message


def test_shortcuts_survive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    Settings(path).change(shortcuts={"new_tab": ("Ctrl+N",), "fork": ()})
    assert Settings(path).values.shortcuts == {"new_tab": ("Ctrl+N",), "fork": ()}


def test_a_path_that_is_no_utf_8_survives_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    # As the system gives the name of a folder in Latin-1.
    model_path = b"/mod\xe8les/\xe5\xba\xad.gguf".decode("utf-8", "surrogateescape")
    Settings(path).change(model_path=model_path, font_family="庭")
    assert Settings(path).values.model_path == model_path
    assert "庭" in path.read_text("utf-8")


def test_a_byte_order_mark_is_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text('{"theme": "dark"}', encoding="utf-8-sig")
    settings = Settings(path)
    assert (settings.values.theme, settings.problems) == ("dark", [])
