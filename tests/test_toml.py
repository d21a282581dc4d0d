"""TOML: one voice for what is wrong with a file."""

from pathlib import Path

import pytest

from fedpriv._toml import parse_toml, read_toml, to_toml


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    values = {"a": 1, "b": [0.1, "\x7f"], "c": {"d e": True, "f": {}}}
    (tmp_path / "x.toml").write_text(to_toml(values))
    assert read_toml(tmp_path / "x.toml", "roster") == values


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"roster '.*x\.toml' cannot be read: No such file or directory\."),
        (b"a = ", r"roster '.*x\.toml' is not TOML: Invalid value"),
        (b"a = '\xff'", r"roster '.*x\.toml' is not TOML: .*decode"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "x.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_toml(path, "roster")


def test_a_bad_text_is_named() -> None:
    with pytest.raises(ValueError, match="the invitation is not TOML"):
        parse_toml("=", "the invitation")
