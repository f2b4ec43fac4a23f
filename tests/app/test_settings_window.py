"""The settings window: rows, search, resets, what the engine makes of a change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import shiboken6
from PySide6.QtCore import Qt
from PySide6.QtGui import QKeySequence
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLineEdit

from app.sampling_presets import PRESETS, preset_of, with_preset
from app.setting_specs import Section, specs_of
from app.settings import Settings
from app.widgets.settings.row import SettingRow
from app.widgets.settings.window import SettingsWindow
from engine.api.commands import Configure
from engine.api.params import EngineConfig, SamplingParams
from tests.helpers.window_stage import Stage, window_stage

pytestmark = pytest.mark.qt_log_ignore(r"propagateSizeHints|raise\(\)")


@pytest.fixture
def stage(qtbot) -> Iterator[Stage]:
    with window_stage(qtbot) as made:
        yield made


@pytest.fixture
def window(stage: Stage) -> Iterator[SettingsWindow]:
    shown = stage.window.preferences.show_settings()
    yield shown
    if shiboken6.isValid(shown):
        shown.close()


def type_into(row: SettingRow, text: str) -> None:
    """Replaces what is in a row's field, as a user does, and leaves it."""
    field = row.editor.widget
    assert isinstance(field, QLineEdit)
    field.setFocus()
    field.selectAll()
    QTest.keyClicks(field, text)
    QTest.keyClick(field, Qt.Key.Key_Return)


def shown_paths(window: SettingsWindow) -> list[str]:
    return [path for path, row in window.rows.items() if row.isVisible()]


def test_it_does_not_block_and_opens_once(stage: Stage, window: SettingsWindow) -> None:
    assert not window.isModal()
    assert stage.window.preferences.show_settings() is window


def test_a_typed_value_counts_and_is_saved(stage: Stage, window: SettingsWindow) -> None:
    window.show_section("sampling")
    type_into(window.rows["sampling.top_p"], "0.9")
    assert stage.settings.values.sampling.top_p == 0.9


def test_typing_alone_counts_after_a_pause(stage: Stage, window: SettingsWindow, qtbot) -> None:
    window.show_section("sampling")
    field = window.rows["sampling.top_k"].editor.widget
    field.setFocus()
    field.selectAll()
    QTest.keyClicks(field, "40")
    qtbot.waitUntil(lambda: stage.settings.values.sampling.top_k == 40)


def test_an_invalid_value_stays_in_the_field_with_the_reason_and_is_not_saved(
    stage: Stage, window: SettingsWindow
) -> None:
    window.show_section("sampling")
    row = window.rows["sampling.min_p"]
    for text in ("1.5", "much", "-0.1", "nan"):
        type_into(row, text)
        assert stage.settings.values.sampling.min_p == 0.0
        assert row.editor.text() == text
        assert row.error.isVisible()
        assert row.error.text()
    type_into(row, "0.1")
    assert not row.error.isVisible()
    assert stage.settings.values.sampling.min_p == 0.1


def test_what_is_being_typed_survives_a_change_elsewhere(
    stage: Stage, window: SettingsWindow
) -> None:
    window.show_section("sampling")
    row = window.rows["sampling.min_p"]
    type_into(row, "wrong")
    stage.session.change_settings(theme="dark")
    assert row.editor.text() == "wrong"
    assert row.error.isVisible()
    stage.session.change_settings(theme="light")


def test_reset_brings_the_default_back(stage: Stage, window: SettingsWindow) -> None:
    window.show_section("sampling")
    row = window.rows["sampling.temperature"]
    assert not row.reset_button.isEnabled()
    type_into(row, "2")
    assert row.reset_button.isEnabled()
    QTest.mouseClick(row.reset_button, Qt.MouseButton.LeftButton)
    assert stage.settings.values.sampling.temperature == 0.7
    assert row.editor.text() == "0.7"


def test_reset_all_keeps_what_it_says_it_keeps(stage: Stage, window: SettingsWindow) -> None:
    change = stage.session.change_settings
    change(sampling=SamplingParams(top_k=5), engine=EngineConfig(token_budget=99))
    change(default_system_prompt="Mine.", shortcuts={"new_tab": ("Ctrl+N",)})
    window.show_section("file")
    window.file.reset_button.click()
    values = stage.settings.values
    assert (values.sampling, values.engine) == (SamplingParams(), EngineConfig())
    assert values.default_system_prompt == "Mine."
    assert values.shortcuts == {"new_tab": ("Ctrl+N",)}


def test_reset_all_can_be_taken_back(stage: Stage, window: SettingsWindow, qtbot) -> None:
    change = stage.session.change_settings
    change(sampling=SamplingParams(top_k=5), engine=EngineConfig(token_budget=99), font_size=12.0)
    before = stage.settings.values
    window.show_section("file")
    assert window.undo_bar.isHidden()
    window.file.reset_button.click()
    assert stage.settings.values != before
    bar = window.undo_bar
    # Other fonts: the window is made anew.
    qtbot.waitUntil(lambda: window.undo_bar is not bar)
    assert window.undo_bar.label.text() == "All settings were reset."
    window.undo_bar.undo_button.click()
    assert stage.settings.values == before
    assert window.undo_bar.isHidden()


def test_search_finds_settings_of_all_sections(window: SettingsWindow) -> None:
    for query, path in (
        ("max_num_seqs", "engine.max_running_requests"),
        ("TOP-P", "sampling.top_p"),
        ("block pool memory", "engine.kv_cache_bytes"),
        ("theme", "theme"),
    ):
        window.search.setText(query)
        assert path in shown_paths(window)
        assert len(shown_paths(window)) < 6


def test_a_search_without_a_hit_says_so(window: SettingsWindow) -> None:
    window.search.setText("xyzzy")
    assert shown_paths(window) == []
    assert window.nothing.isVisible()
    window.search.clear()
    assert not window.nothing.isVisible()


def test_a_section_shows_its_rows_alone(window: SettingsWindow) -> None:
    window.show_section("engine")
    assert set(shown_paths(window)) == {spec.path for spec in specs_of(Section.ENGINE)}


def test_a_preset_sets_how_words_are_chosen_and_nothing_else(
    stage: Stage, window: SettingsWindow
) -> None:
    stage.session.change_settings(sampling=SamplingParams(seed=7, stop=("END",), max_tokens=9))
    window.show_section("sampling")
    window.search.setText("greedy")
    window.presets.buttons["greedy"].click()
    params = stage.settings.values.sampling
    assert params == SamplingParams(temperature=0.0, seed=7, stop=("END",), max_tokens=9)
    assert window.presets.buttons["greedy"].isChecked()
    window.show_section("sampling")
    type_into(window.rows["sampling.temperature"], "0.5")
    assert not window.presets.buttons["greedy"].isChecked()


def test_presets_are_told_apart() -> None:
    assert [preset_of(with_preset(SamplingParams(seed=3), name)) for name in PRESETS] == [*PRESETS]
    assert preset_of(SamplingParams(temperature=0.123)) == ""


# --- the engine ---


def configures(stage: Stage) -> list[EngineConfig]:
    return [c.config for c in stage.engine.commands if isinstance(c, Configure)]


def test_a_limit_of_the_engine_takes_effect_at_once(
    stage: Stage, window: SettingsWindow, qtbot
) -> None:
    window.show_section("engine")
    type_into(window.rows["engine.max_running_requests"], "3")
    qtbot.waitUntil(lambda: stage.engine.config.max_running_requests == 3)
    assert not window.pending.isVisible()


def test_what_needs_another_load_says_so_and_offers_it(
    stage: Stage, window: SettingsWindow, qtbot
) -> None:
    window.show_section("engine")
    type_into(window.rows["engine.block_size"], "32")
    qtbot.waitUntil(window.pending.isVisible)
    assert "Block size" in window.pending_label.text()
    assert stage.engine.config.block_size == 16
    window.reload_button.click()
    qtbot.waitUntil(lambda: stage.engine.config.block_size == 32)
    assert not window.pending.isVisible()


def test_a_setting_that_the_engine_refuses_goes_back(
    stage: Stage, window: SettingsWindow, qtbot
) -> None:
    window.show_section("engine")
    stage.session.change_settings(engine=EngineConfig(backend="paged_triton", token_budget=64))
    qtbot.waitUntil(lambda: stage.settings.values.engine == EngineConfig())
    assert "There is no GPU here." in window.pending_label.text()
    assert window.rows["engine.backend"].editor.text() == "auto"


def test_another_attention_backend_is_shown_where_the_model_is(
    stage: Stage, window: SettingsWindow, qtbot
) -> None:
    stage.session.change_settings(engine=EngineConfig(backend="dense"))
    strip = stage.window.status_strip
    qtbot.waitUntil(lambda: "dense" in strip.model.toolTip())
    stage.session.change_settings(engine=EngineConfig())


def test_without_a_model_settings_wait_for_the_load(qtbot) -> None:
    with window_stage(qtbot, load=False) as stage:
        stage.session.change_settings(engine=EngineConfig(token_budget=64))
        stage.session.load_model()
        qtbot.waitUntil(lambda: stage.session.model_state.info is not None)
        assert configures(stage) == []
        assert stage.engine.config.token_budget == 64


# --- one conversation ---


def test_the_sampling_of_a_conversation_is_its_own(stage: Stage, qtbot) -> None:
    first = stage.page.conversation_id
    second = stage.window.new_tab()
    stage.window.preferences.show_sampling(first)
    shown = stage.window.preferences._open[f"sampling {first}"]
    type_into(shown.rows["sampling.top_k"], "5")
    assert stage.session.sampling(first).top_k == 5
    assert stage.session.sampling(second).top_k == 0
    assert stage.settings.values.sampling.top_k == 0
    shown.default_button.click()
    assert stage.session.conversation(first).params is None
    assert shown.rows["sampling.top_k"].editor.text() == "0"
    shown.close()


def test_the_next_answer_is_sampled_so(stage: Stage, qtbot) -> None:
    conversation_id = stage.page.conversation_id
    stage.session.set_sampling(conversation_id, SamplingParams(temperature=0.0, max_tokens=2))
    stage.page.submit("Question")
    qtbot.waitUntil(lambda: not stage.session.is_busy(conversation_id))
    answer = stage.session.conversation(conversation_id).path()[-1]
    assert answer.params == SamplingParams(temperature=0.0, max_tokens=2)
    assert answer.limit == "max_tokens"


def test_the_button_of_the_composer_opens_it(stage: Stage) -> None:
    stage.page.composer.sampling_button.click()
    shown = stage.window.preferences._open[f"sampling {stage.page.conversation_id}"]
    assert shown.isVisible()
    shown.close()


# --- shortcuts ---


def set_keys(window: SettingsWindow, action_id: str, keys: str) -> None:
    window.shortcuts.select(action_id)
    window.shortcuts.edit.setKeySequence(QKeySequence(keys))
    window.shortcuts.edit.editingFinished.emit()


def test_other_keys_work_and_the_old_ones_do_not(
    stage: Stage, window: SettingsWindow, qtbot
) -> None:
    window.show_section("shortcuts")
    set_keys(window, "new_tab", "Ctrl+Alt+N")
    qtbot.waitUntil(lambda: stage.settings.values.shortcuts == {"new_tab": ("Ctrl+Alt+N",)})
    window.close()
    control = Qt.KeyboardModifier.ControlModifier
    stage.window.activateWindow()
    qtbot.waitUntil(stage.window.isActiveWindow)
    before = len(stage.session.conversation_ids())
    QTest.keyClick(stage.window, Qt.Key.Key_T, control)
    assert len(stage.session.conversation_ids()) == before
    QTest.keyClick(stage.window, Qt.Key.Key_N, control | Qt.KeyboardModifier.AltModifier)
    assert len(stage.session.conversation_ids()) == before + 1
    assert "Ctrl+Alt+N" in stage.window.actions_registry["new_tab"].toolTip()


def test_keys_that_cannot_be_are_refused_with_the_reason(
    stage: Stage, window: SettingsWindow
) -> None:
    window.show_section("shortcuts")
    for keys, words in (
        ("Ctrl+W", "Ctrl+W belongs to “Close tab”."),
        ("X", "X alone could no longer be typed; add Ctrl or Alt."),
        ("Shift+X", "Shift+X alone could no longer be typed; add Ctrl or Alt."),
        ("Ctrl+C", "Ctrl+C is needed for writing."),
        ("Return", "Return is needed for writing."),
        ("Del", "Del alone could no longer be typed; add Ctrl or Alt."),
    ):
        set_keys(window, "new_tab", keys)
        assert window.shortcuts.error.text() == words
    assert stage.settings.values.shortcuts == {}


def test_keys_go_back_one_by_one_and_all_together(
    stage: Stage, window: SettingsWindow, qtbot
) -> None:
    window.show_section("shortcuts")
    for action_id, keys in (("new_tab", "Ctrl+Alt+N"), ("fork", ""), ("next_tab", "F9")):
        set_keys(window, action_id, keys)
        qtbot.waitUntil(lambda a=action_id: a in stage.settings.values.shortcuts)
    shortcuts, actions = window.shortcuts, stage.window.actions_registry
    assert actions["fork"].shortcuts() == []
    shortcuts.select("fork")
    shortcuts.reset_button.click()
    assert actions["fork"].shortcut().toString() == "Ctrl+Shift+K"
    assert stage.settings.values.shortcuts.keys() == {"new_tab", "next_tab"}
    window.shortcuts.reset_all.click()
    assert stage.settings.values.shortcuts == {}
    assert [k.toString() for k in actions["next_tab"].shortcuts()] == ["Ctrl+Tab", "Ctrl+PgDown"]
    shortcuts.select("next_tab")
    assert shortcuts.edit.keySequence().toString() == "Ctrl+Tab"
    row = shortcuts.action_ids().index("next_tab")
    assert shortcuts.table.item(row, 1).text() == "Ctrl+Tab, Ctrl+PgDown"
    assert window.undo_bar.label.text() == "All shortcuts were reset."
    window.undo_bar.undo_button.click()
    assert stage.settings.values.shortcuts.keys() == {"new_tab", "next_tab"}


def test_keys_in_the_file_that_cannot_be_are_told(stage: Stage) -> None:
    stage.session.change_settings(shortcuts={"fly": ("F7",)})
    registry = stage.window.actions_registry
    registry.refused_shortcuts = registry.set_shortcuts(stage.settings.values.shortcuts)
    stage.window.preferences.report_shortcuts()
    problem = stage.settings.problems[-1]
    assert problem.code == "invalid_setting"
    assert "shortcuts.fly = 'F7'" in problem.message


def test_every_action_of_the_menus_is_listed(stage: Stage, window: SettingsWindow) -> None:
    listed = window.shortcuts.action_ids()
    assert sorted(listed) == sorted(a.objectName() for a in stage.window.actions_registry)


def test_unused_entries_of_the_file_are_shown(tmp_path: Path, qtbot) -> None:
    from app.widgets.settings.file_part import FilePart

    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"colour": "red", "engine": {"blocks": 7}}), "utf-8")
    part = FilePart(Settings(path))
    qtbot.addWidget(part)
    assert part.unused.text().splitlines()[1:] == ["colour = 'red'", "engine.blocks = 7"]
    assert part.where.text() == str(path)
