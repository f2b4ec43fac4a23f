"""What a conversation is called: cleaned, and made from its first message without a model. Qt-free.

A title is the gist of one line: without the greeting and the "could you please" before it, without
Markdown's marks; of an address what it names, of code what it defines.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from urllib.parse import unquote, urlsplit

TITLE_LENGTH = 48
"""In characters of ordinary width; those of Chinese count twice."""

_FENCE = re.compile(r"^\s{0,3}(`{3,}|~{3,})\s*([\w+#.-]*)")
_MARK = re.compile(r"^\s{0,3}(?:#{1,6}\s+|>\s?|[-*+]\s+(?:\[[ xX]\]\s+)?|\d{1,3}[.)]\s+)+")
_EMPHASIS = re.compile(r"(\*\*|__|~~|`)(?=\S)(.+?)(?<=\S)\1")
_LINK = re.compile(r"!?\[([^\]]+)\]\([^)\s]+\)")
_URL = re.compile(r"\b(?:https?://|www\.)[^\s<>\"'“”（），。、]+", re.IGNORECASE)
_GREETING = re.compile(
    r"(?:(?:hi|hello|hey)\s+(?:there|all|everyone)|hi|hello|hey|hiya|howdy|greetings"
    r"|dear\s+\w+|good\s+(?:morning|afternoon|evening|day)"
    r"|(?:你|您|大家)好(?:[啊呀吗])?|嗨|哈[喽啰]|(?:早上|上午|中午|下午|晚上)好|在吗)"
    r"(?![\w-])(?:\s*[,.!?;:~，。！？；：～、]+|\s+|$)|(?:你|您)好(?=\S)",
    re.IGNORECASE,
)
_THANKS = re.compile(
    r"(?:thanks|thank you|thx|ok|okay|yes|no|test|ping|谢谢|好的|测试|是的|嗯)[\s.!?,，。！？]*",
    re.IGNORECASE,
)
_ASKING = re.compile(
    r"(?:(?:can|could|would|will)\s+you\s+(?:please\s+|kindly\s+)?(?:help\s+me\s+(?:to\s+)?)?"
    r"|please\s+(?:help\s+me\s+(?:to\s+)?)?|i\s+(?:want|need|would\s+like)\s+you\s+to\s+"
    r"|i'd\s+like\s+you\s+to\s+|help\s+me\s+(?:to\s+)?"
    r"|(?:麻烦|劳驾)(?:你|您)?|(?:能不能|可不可以|可以|能否)(?:请)?(?:帮我|帮忙)"
    r"|请?(?:你|您)?(?:帮我|帮忙)(?:一下)?|请问一下|请问|请(?=\w))[，,\s]*",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"(?<=[。！？!?])|(?<=\.)(?=\s)")
_DEFINES = re.compile(
    # Within the line: what goes over line ends would look at the rest again for every line.
    r"^[^\S\n]*(?:(?:export|default|public|private|protected|static|async|pub)[^\S\n]+)*"
    r"(?:def|class|function|func|fn|struct|interface|enum|trait|module)\s+([A-Za-z_]\w*)",
    re.MULTILINE,
)
_MIN_GIST = 4
JOINERS = "\u200c\u200d"
"""Invisible, but parts of words in Persian and the scripts of India, and of emoji."""
_READ = 8000
_LINE = 400
"""How much of a text, and of a line, is looked at: a paste may have megabytes."""


def clean_title(text: str) -> str:
    """The first line that is not blank, without control characters, cut to ``TITLE_LENGTH``."""
    return next((_cut(line) for line in _plain_lines(text[:_READ])), "")


def automatic_title(text: str) -> str:
    """What a message is about, in one short line; empty for a blank one."""
    lines, code, language = _split(text.lstrip()[:_READ])
    for line in lines:
        gist = _gist(line)
        if gist and not is_small_talk(gist):
            return _cut(gist)
    if code:
        return _cut(_code_title(code, language))
    return clean_title(text)


def title_of(messages: Iterable[str]) -> str:
    """The title of a conversation with these messages of the user's: the first that says more
    than a greeting, or else the first.
    """
    first = ""
    for text in messages:
        title = automatic_title(text)
        if title and not is_small_talk(title):
            return title
        first = first or title
    return first


def is_small_talk(text: str) -> bool:
    """True for a line that only greets, thanks or agrees."""
    rest = _without_greetings(text).strip()
    return not any(c.isalnum() for c in rest) or _THANKS.fullmatch(rest) is not None


def _plain_lines(text: str) -> Iterator[str]:
    """Lines that are not blank, without control characters, with single spaces."""
    for line in (line[:_LINE] for line in text.splitlines()):
        # Format characters include the bidirectional controls, which could reorder a tab's text.
        plain = "".join(" " if c == "\t" else c for c in line if _is_shown(c))
        plain = " ".join(plain.split())
        if plain.strip(JOINERS):
            yield plain


def _is_shown(c: str) -> bool:
    return c == "\t" or c in JOINERS or unicodedata.category(c)[0] != "C"


def _split(text: str) -> tuple[list[str], str, str]:
    """(lines of prose, the first fenced code, its language)."""
    prose: list[str] = []
    code: list[str] = []
    language = fence = ""
    is_first = True
    for line in text.splitlines():
        found = _FENCE.match(line)
        if fence:
            if found and found[1].startswith(fence) and not found[2]:
                fence, is_first = "", False
            elif is_first:
                code.append(line)
        elif found:
            fence = found[1]
            language = language or found[2]
        else:
            prose += _plain_lines(line)
    return prose, "\n".join(code), language


def _gist(line: str) -> str:
    line = _LINK.sub(r"\1", _MARK.sub("", line))
    line = _EMPHASIS.sub(r"\2", line)
    only_url = _URL.fullmatch(line.strip())
    line = _URL.sub(lambda found: _address(found[0]), line).strip()
    if only_url:
        return line
    rest = _without_greetings(line)
    asked = _ASKING.sub("", rest, count=1) if _ASKING.match(rest) else rest
    rest = asked if sum(c.isalnum() for c in asked) >= _MIN_GIST else rest
    if not any(c.isalnum() for c in rest):
        return line
    if _width(rest) > TITLE_LENGTH:
        # The question rather than what leads up to it: a whole sentence that fits.
        sentence = next(iter(_SENTENCE_END.split(rest))).strip()
        if _MIN_GIST <= len(sentence) < len(rest):
            rest = sentence
    is_shorter = not line.startswith(rest)
    rest = rest.rstrip("。.:：，,;；、 ") or rest
    return rest[0].upper() + rest[1:] if is_shorter else rest


def _without_greetings(text: str) -> str:
    while found := _GREETING.match(text):
        if not text[found.end() :].strip():
            return ""
        text = text[found.end() :].lstrip(" ,.!?;:~，。！？；：～、")
    return text


def _address(url: str) -> str:
    """Host and last part of the path: what a long address is about."""
    tail = url[len(url.rstrip(".,;:!?)")) :]
    url = url[: len(url) - len(tail)]
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host = (parts.hostname or "").removeprefix("www.")
    except ValueError:
        return url + tail
    names = [unquote(name) for name in parts.path.split("/") if name]
    shown = f"{host}/…/{names[-1]}" if len(names) > 1 else "/".join([host, *names])
    return next(_plain_lines(shown), host) + tail


def _code_title(code: str, language: str) -> str:
    found = _DEFINES.search(code)
    what = found[1] if found else next(_plain_lines(code), "")
    return f"{language}: {what}" if language and what else what or language


def _cut(line: str) -> str:
    if _width(line) <= TITLE_LENGTH:
        return line
    room, cut = TITLE_LENGTH - 1, 0
    for c in line:
        room -= _width(c)
        if room < 0:
            break
        cut += 1
    space = line.rfind(" ", 0, cut + 1)
    # At the end of a word, unless that would take much of it away.
    cut = space if space > cut - 12 and space > 0 else cut
    return line[:cut].rstrip(" ,.:;，。、：；") + "…"


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
