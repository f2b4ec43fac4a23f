"""Where fcitx is wanted and Qt has no plugin for it, ibus is used."""

from __future__ import annotations

import pytest

from app.input_method import replace_missing, use_an_input_method_that_is_there

WHEEL = ["libcomposeplatforminputcontextplugin.so", "libibusplatforminputcontextplugin.so"]
DISTRIBUTION = [*WHEEL, "libfcitx5platforminputcontextplugin.so"]


@pytest.mark.parametrize(
    ("plugins", "before", "after"),
    [
        (WHEEL, {"QT_IM_MODULE": "fcitx"}, {"QT_IM_MODULE": "ibus"}),
        (WHEEL, {"QT_IM_MODULE": "fcitx5"}, {"QT_IM_MODULE": "ibus"}),
        (WHEEL, {"QT_IM_MODULES": "wayland;fcitx;ibus"}, {"QT_IM_MODULES": "wayland;ibus"}),
        (WHEEL, {"QT_IM_MODULE": "ibus"}, {"QT_IM_MODULE": "ibus"}),
        (WHEEL, {"QT_IM_MODULE": "compose"}, {"QT_IM_MODULE": "compose"}),
        (WHEEL, {}, {}),
        (DISTRIBUTION, {"QT_IM_MODULE": "fcitx"}, {"QT_IM_MODULE": "fcitx"}),
        ([], {"QT_IM_MODULE": "fcitx"}, {"QT_IM_MODULE": "fcitx"}),
    ],
)
def test_the_module_that_is_there_is_used(
    plugins: list[str], before: dict[str, str], after: dict[str, str]
) -> None:
    replace_missing(before, plugins)
    assert before == after


def test_the_plugins_of_this_qt_are_looked_at() -> None:
    environment = {"QT_IM_MODULE": "fcitx"}
    use_an_input_method_that_is_there(environment)
    assert environment["QT_IM_MODULE"] in ("ibus", "fcitx")
