"""Text files that are attached: every usual encoding is read, everything else is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from app.conversation import Attachment
from app.error_text import describe_error
from app.text_files import MAX_BYTES, AttachmentError, decoded, read_text_file, sent_text

CHINESE = "今天天气很好，我们去公园散步，然后在河边的茶馆喝茶，讨论这本关于缓存的书。\n" * 8
JAPANESE = "これは日本語の文章です。ファイルの文字コードを調べるために書きました。\n" * 8
FRENCH = "L'été dernier, nous avons mangé des crêpes à la crème brûlée près du château.\n" * 8
RUSSIAN = "Вчера мы долго гуляли по старому городу и говорили о новых книгах.\n" * 8


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("plain\n", "ascii"),
        (CHINESE, "utf-8"),
        (CHINESE, "utf-8-sig"),
        (CHINESE, "utf-16"),
        (CHINESE, "utf-32"),
        (CHINESE, "gb18030"),
        (JAPANESE, "shift_jis"),
        (FRENCH, "cp1252"),
        (RUSSIAN, "cp1251"),
        ("", "utf-8"),
    ],
)
def test_the_text_of_a_file_is_found(tmp_path: Path, text: str, encoding: str) -> None:
    path = tmp_path / "張 庭 é.txt"
    path.write_bytes(text.encode(encoding))
    assert read_text_file(path) == Attachment("張 庭 é.txt", text)


def test_line_ends_become_newlines(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\r\ntwo\rthree\n")
    assert read_text_file(path).text == "one\ntwo\nthree\n"


@pytest.mark.parametrize(
    "data",
    [
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
        b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n\0\0",
        os.urandom(5000),
        b"\x7fELF\x02\x01\x01\0",
    ],
)
def test_what_is_no_text_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "thing.bin"
    path.write_bytes(data)
    with pytest.raises(AttachmentError) as refused:
        read_text_file(path)
    cause, action = describe_error(refused.value.info())
    assert cause == "thing.bin is not a text file."
    assert action == "Attach text files; of other documents paste the text."


def test_a_file_over_the_limit_is_refused_with_the_numbers(tmp_path: Path) -> None:
    path = tmp_path / "big.txt"
    path.write_bytes(b"x" * (MAX_BYTES + 1))
    with pytest.raises(AttachmentError) as refused:
        read_text_file(path)
    cause, _action = describe_error(refused.value.info())
    assert cause == "big.txt has 2,048 KB; 2,048 KB are the limit."


@pytest.mark.parametrize("name", ["missing.txt", "folder"])
def test_what_cannot_be_read_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(AttachmentError) as refused:
        read_text_file(tmp_path / name)
    assert describe_error(refused.value.info())[0].startswith(f"{name} cannot be read: ")


def test_a_mark_with_broken_text_behind_it_is_no_crash() -> None:
    assert decoded(b"\xff\xfe\x00") is None or isinstance(decoded(b"\xff\xfe\x00"), str)


def test_a_file_goes_into_the_message_with_its_name_and_a_fence() -> None:
    assert sent_text(Attachment("a.py", "x = 1\n")) == "a.py\n```\nx = 1\n```"


def test_a_fence_in_the_file_does_not_end_its_own() -> None:
    text = "a\n````\nb\n````\n"
    assert sent_text(Attachment("a.md", text)) == f"a.md\n`````\n{text.rstrip()}\n`````"


def test_a_paste_goes_in_as_it_is() -> None:
    assert sent_text(Attachment("", "text\n")) == "text\n"
