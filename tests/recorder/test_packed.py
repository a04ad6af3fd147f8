"""Rollouts that Codex archived: the same session as the plain file, and never a surprise."""

import shutil
from pathlib import Path

import pytest

from flightlog.blobs.zstd import library as zstd
from flightlog_recorder.importer import BadTranscript, grew_from, keys, packed, read_codex
from tests.recorder.rollouts import DATA


def archive(path: Path, content: bytes) -> Path:
    path.write_bytes(zstd.compress(content))
    return path


def test_an_archive_is_the_same_session_as_the_plain_file(tmp_path: Path) -> None:
    plain = DATA / "tools.jsonl"
    file = archive(tmp_path / "tools.jsonl.zst", plain.read_bytes())
    found = read_codex(file)
    assert keys(found) == keys(read_codex(plain))
    assert found.drafts == read_codex(plain).drafts
    assert grew_from(file, size=found.size, hash=found.hash)


def test_the_plain_file_beside_an_archive_wins(tmp_path: Path) -> None:
    file = archive(tmp_path / "r.jsonl.zst", (DATA / "flat.jsonl").read_bytes())
    shutil.copy(DATA / "tools.jsonl", tmp_path / "r.jsonl")
    assert read_codex(file).source_id == "0199-tools"


@pytest.mark.parametrize("cut", [0, 3, 40, -1])
def test_a_damaged_archive_is_refused(tmp_path: Path, cut: int) -> None:
    file = archive(tmp_path / "r.jsonl.zst", (DATA / "tools.jsonl").read_bytes())
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(BadTranscript, match=r"damaged or cut off|it is empty"):
        read_codex(file)
    file.write_bytes(b"no archive at all")
    with pytest.raises(BadTranscript, match="damaged"):
        read_codex(file)


def test_an_archive_that_unpacks_without_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed, "MOST", 4 << 20)
    file = archive(tmp_path / "r.jsonl.zst", bytes(64 << 20))
    assert file.stat().st_size < 10_000
    with pytest.raises(BadTranscript, match="it unpacks to more than 4,194,304 bytes"):
        read_codex(file)
