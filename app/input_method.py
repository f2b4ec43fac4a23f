"""The input method that Qt is to use, where the desktop names one that Qt's wheel lacks."""

from __future__ import annotations

from collections.abc import Collection, MutableMapping
from pathlib import Path

from PySide6.QtCore import QLibraryInfo

_VARIABLES = ("QT_IM_MODULES", "QT_IM_MODULE")
_MISSING, _INSTEAD = "fcitx", "ibus"


def use_an_input_method_that_is_there(environment: MutableMapping[str, str]) -> None:
    """Puts ibus in the place of fcitx, whose daemon speaks ibus's protocol too.

    The wheel of PySide6 ships a plugin for ibus and none for fcitx; without one, Chinese cannot be
    typed at all. To be called before the application is made.
    """
    folder = Path(QLibraryInfo.path(QLibraryInfo.LibraryPath.PluginsPath))
    plugins = [path.name for path in (folder / "platforminputcontexts").glob("*")]
    replace_missing(environment, plugins)


def replace_missing(environment: MutableMapping[str, str], plugins: Collection[str]) -> None:
    """The same with the file names of the plugins given."""
    has = {name: any(name in plugin for plugin in plugins) for name in (_MISSING, _INSTEAD)}
    if has[_MISSING] or not has[_INSTEAD]:
        return
    for variable in _VARIABLES:
        # QT_IM_MODULES is a list, the most wanted first.
        names = environment.get(variable, "").split(";")
        if any(name.startswith(_MISSING) for name in names):
            chosen = [_INSTEAD if name.startswith(_MISSING) else name for name in names]
            environment[variable] = ";".join(dict.fromkeys(chosen))
