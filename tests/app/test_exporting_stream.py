"""A large file is read bit by bit: the same values, little in memory, stopped at will."""

from __future__ import annotations

import io
import json
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import pytest

from app import exporting_stream
from app.conversation import ASSISTANT, USER, Conversation, Message
from app.exporting import to_json
from app.exporting_import import ImportFileError, read_conversations, read_file
from app.exporting_stream import JsonWindow, entries


def made(title: str, answer: str = "answer") -> Conversation:
    conversation = Conversation(title=title)
    conversation.append(Message(USER, f"question of {title} 🦓"))
    conversation.append(Message(ASSISTANT, answer))
    return conversation


def read_in_pieces(data: bytes, piece: int, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    monkeypatch.setattr(exporting_stream, "FIRST_PIECE", piece)
    window = JsonWindow(io.BytesIO(data), len(data), lambda _part: None)
    return list(entries(window, "conversations"))


DOCUMENTS: list[Any] = [
    [],
    {},
    [1, 23.5, True, None, "a", [2, [3]], {"b": {}}],
    {"format": "x", "version": 12, "conversations": [{"a": "é 缓存 🦓"}, {"b": -1e-5}], "z": 7},
    {"conversations": 5},
    {"conversations": []},
]


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("document", DOCUMENTS)
def test_pieces_of_any_size_give_the_same(
    document: Any, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(document, list):
        expected = [("[]", value) for value in document]
    else:
        expected = [
            (name if member is value else f"{name}[]", member)
            for name, value in document.items()
            for member in (value if isinstance(value, list) else [value])
        ]
    for text in (json.dumps(document), json.dumps(document, ensure_ascii=False, indent=3)):
        data = b"\xef\xbb\xbf" + f" \n{text}\t ".encode()
        assert read_in_pieces(data, piece, monkeypatch) == expected


BROKEN = [
    *("", "[", "[1", "[1,", "[1,]", "[1 2]", "[1]]", "[tru]", "x", "\xff", '["\\ud8"]'),
    *("{", '{"a"', '{"a" 1}', "{1: 2}", '{"a": 1,}', '{"a": 1} 2'),
]


@pytest.mark.parametrize("piece", [1, 1000])
@pytest.mark.parametrize("text", BROKEN)
def test_what_is_no_json_is_refused_wherever_it_is_cut(
    text: str, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the words are the decoder's
        read_in_pieces(text.encode("latin-1"), piece, monkeypatch)


def test_only_a_window_of_a_large_file_is_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting_stream, "FIRST_PIECE", 1 << 14)
    many = [made(f"Number {n}", "word " * 20_000) for n in range(60)]
    path = tmp_path / "many.json"
    path.write_text(to_json(many), encoding="utf-8")
    size = path.stat().st_size
    del many
    tracemalloc.start()
    with path.open("rb") as file:
        window = JsonWindow(file, size, lambda _part: None)
        count = sum(name == "conversations[]" for name, _ in entries(window, "conversations"))
    _now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 60
    assert size > 5_500_000
    assert peak < size / 2


def test_the_header_may_come_after_the_conversations() -> None:
    document = json.loads(to_json([made("One")]))
    turned = dict(reversed(document.items()))
    (conversation,) = read_conversations(json.dumps(turned).encode()).conversations
    assert conversation.title == "One"


def test_reading_tells_how_far_it_is_and_stops_when_told_so(tmp_path: Path) -> None:
    path = tmp_path / "many.json"
    path.write_text(to_json([made(f"{n}", "x" * 5000) for n in range(300)]), encoding="utf-8")
    heard: list[float] = []
    read_file(path, heard.append)
    parts = [part for part in heard if part >= 0.0]
    assert parts == sorted(parts)
    assert parts[-1] > 0.5

    class Stopped(Exception):
        pass

    def stop(_part: float) -> None:
        raise Stopped

    with pytest.raises(Stopped):
        read_file(path, stop)


def test_the_archive_of_chatgpt_is_read_without_unpacking_it(tmp_path: Path) -> None:
    entry = {
        "title": "Zipped",
        "mapping": {
            "q": {
                "parent": None,
                "message": {
                    "author": {"role": "user"},
                    "content": {"content_type": "text", "parts": ["x"]},
                },
            }
        },
    }
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("chat.html", "<script>")
        archive.writestr("inner/conversations.json", json.dumps([entry]))
    (conversation,) = read_file(path).conversations
    assert conversation.title == "Zipped"


@pytest.mark.parametrize("content", [{"other.json": "[]"}, {}])
def test_an_archive_without_conversations_is_refused(
    tmp_path: Path, content: dict[str, str]
) -> None:
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme", "x")
        for name, text in content.items():
            archive.writestr(name, text)
    with pytest.raises(ImportFileError, match="there is no conversations"):
        read_file(path)


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "export.zip"
    path.write_bytes(b"PK\x03\x04 and nothing that belongs to it")
    with pytest.raises(ImportFileError, match=r"export\.zip cannot be read"):
        read_file(path)


def packed(path: Path, method: int) -> bytearray:
    """An archive of ChatGPT's, whose packed content begins at byte 30 + 18."""
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("conversations.json", json.dumps([{"mapping": {}}] * 500))
    return bytearray(path.read_bytes())


@pytest.mark.parametrize(
    ("local", "central", "value", "reason"),
    [(6, 8, 1, "protected by a password"), (8, 10, 97, "method is not supported")],
)
def test_an_archive_that_cannot_be_unpacked_is_refused(
    tmp_path: Path, local: int, central: int, value: int, reason: str
) -> None:
    data = packed(tmp_path / "export.zip", zipfile.ZIP_DEFLATED)
    data[local] = data[data.index(b"PK\x01\x02") + central] = value
    (tmp_path / "export.zip").write_bytes(data)
    with pytest.raises(ImportFileError, match=rf"export\.zip cannot be read: .*{reason}"):
        read_file(tmp_path / "export.zip")


@pytest.mark.parametrize(
    ("method", "at"),
    [(zipfile.ZIP_DEFLATED, 48), (zipfile.ZIP_LZMA, 60), (zipfile.ZIP_BZIP2, 60)],
)
def test_an_archive_with_damaged_content_is_refused(tmp_path: Path, method: int, at: int) -> None:
    data = packed(tmp_path / "export.zip", method)
    data[at : at + 16] = b"\xff" * 16
    (tmp_path / "export.zip").write_bytes(data)
    with pytest.raises(ImportFileError, match=r"export\.zip cannot be read: ."):
        read_file(tmp_path / "export.zip")


def test_more_than_a_gigabyte_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting_stream, "MAX_BYTES", 1000)
    path = tmp_path / "many.json"
    path.write_text(to_json([made("One", "x" * 2000)]), encoding="utf-8")
    with pytest.raises(ImportFileError, match=r"many\.json is larger than 1 GB"):
        read_file(path)
    packed = tmp_path / "bomb.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", "[" + " " * 5000 + "]")
    assert packed.stat().st_size < 1000
    with pytest.raises(ImportFileError, match=r"bomb\.zip is larger than 1 GB"):
        read_file(packed)
