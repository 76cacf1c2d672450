"""Archives with the traces of several ranks."""

import gzip
import io
import json
import tarfile
import zipfile
from pathlib import Path

import pytest

from jarvis.cli import main
from jarvis.core.errors import JarvisError, UnreadableTraceError
from jarvis.core.unpacking import SIZE_VARIABLE
from jarvis.ranks.archives import holds_several, unpack, unpacked_archives
from jarvis.ranks.inputs import MAX_RANKS_VARIABLE, NoTracesError, ranks_of_pattern, trace_files
from jarvis.ranks.run import DistributedRun
from tests.ranks.test_distributed import rank_trace

MB = 1 << 20


def archive(path: Path, **contents: bytes) -> Path:
    """Write an archive with these files."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zipped:
            for name, content in contents.items():
                zipped.writestr(name, content)
        return path
    with tarfile.open(path, "w:gz") as tar:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


@pytest.fixture(params=["a.zip", "a.tar.gz"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / str(request.param)


def names_in(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def test_traces_are_unpacked_and_other_files_left_out(path: Path, tmp_path: Path) -> None:
    contents = {"d/rank0.json": b"{}", "d/rank1.json.gz": gzip.compress(b"{}"), "d/note.txt": b"n"}
    contents |= {"__MACOSX/d/rank0.json": b"m", "d/.rank2.json": b"h", "truth.json": b"t"}
    archive(path, **contents)
    assert holds_several(path)
    assert unpack(path, tmp_path / "o") == [
        tmp_path / "o" / "d" / "rank0.json",
        tmp_path / "o" / "d" / "rank1.json.gz",
    ]
    assert names_in(tmp_path / "o") == ["d/rank0.json", "d/rank1.json.gz"]
    assert (tmp_path / "o" / "d" / "rank1.json.gz").read_bytes() == contents["d/rank1.json.gz"]


def test_no_name_leaves_the_folder(path: Path, tmp_path: Path) -> None:
    deep = "/".join("abcdefgh") + "/rank3.json"
    long = "x" * 150 + "rank4.json"
    names = (long, "../../rank0.json", "/etc/rank1.json", "x y/a\\rank2.json", deep)
    archive(path, **dict.fromkeys(names, b"{}"))
    places = unpack(path, tmp_path / "o")
    assert len(places) == len(trace_files([tmp_path / "o"])) == 5
    assert {p.parts[: len(tmp_path.parts) + 1] for p in places} == {(*tmp_path.parts, "o")}
    assert not (tmp_path.parent / "rank0.json").exists()


def test_links_in_an_archive_are_left_out(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tgz", "w:gz") as tar:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
            member = tarfile.TarInfo("rank0.json")
            member.type, member.linkname = kind, "/etc/passwd"
            tar.addfile(member)
    with pytest.raises(UnreadableTraceError, match=r"no \.json"):
        unpack(tmp_path / "a.tgz", tmp_path / "o")


def test_files_of_one_name_stay_apart(path: Path, tmp_path: Path) -> None:
    archive(path, **{"a/rank0.json": b"1", "/a/rank0.json": b"2"})
    assert len(unpack(path, tmp_path / "o")) == 2


def test_archives_in_archives_are_refused(path: Path, tmp_path: Path) -> None:
    archive(path, **{"rank0.json": b"{}", "rank1.json": b"{}", "more.zip": b"PK"})
    with pytest.raises(UnreadableTraceError, match=r"more\.zip in it is an archive"):
        unpack(path, tmp_path / "o")


def test_the_limits_hold_for_each_file_and_for_the_sum(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive(path, **{f"rank{n}.json": b" " * (40 * MB) for n in range(2)})
    with pytest.raises(UnreadableTraceError, match="more than 200 times its size"):
        unpack(path, tmp_path / "sum")
    monkeypatch.setenv(SIZE_VARIABLE, "0.001")
    archive(path, **{"rank0.json": b"{}", "rank1.json": b" " * 2_000_000})
    with pytest.raises(UnreadableTraceError, match=r"0\.001 GB"):
        unpack(path, tmp_path / "each")


def test_too_many_traces_and_damage(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive(path, **{f"rank{n}.json": bytes(range(256)) * 40 for n in range(3)})
    monkeypatch.setenv(MAX_RANKS_VARIABLE, "2")
    with pytest.raises(UnreadableTraceError, match="more than 2 traces"):
        unpack(path, tmp_path / "many")
    monkeypatch.delenv(MAX_RANKS_VARIABLE)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UnreadableTraceError, match="damaged"):
        unpack(path, tmp_path / "half")


def test_a_long_name_is_not_read(tmp_path: Path) -> None:
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 8 * MB
    with gzip.open(tmp_path / "a.tar.gz", "wb") as file:
        file.write(header.tobuf() + bytes(8 * MB))
    with pytest.raises(UnreadableTraceError, match="name that is too long"):
        unpack(tmp_path / "a.tar.gz", tmp_path / "o")


def test_archives_of_one_trace_stay_files(tmp_path: Path) -> None:
    one = archive(tmp_path / "one.zip", **{"rank0.json": b"{}"})
    sheets = archive(tmp_path / "sheets.zip", **{"gpu_timeline.csv": b"a"})
    with unpacked_archives([one, sheets, tmp_path / "missing.zip"]) as paths:
        assert paths == [one, sheets, tmp_path / "missing.zip"]


def test_the_command_takes_an_archive(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traces = {
        f"t/{rank}.json": json.dumps(rank_trace(rank).document()).encode() for rank in range(2)
    }
    archive(path, **traces)
    assert main(["analyze", str(path), "--jobs", "1", "--json"]) == 0
    root = Path(json.loads(capsys.readouterr().out)["run"])
    assert root.parent == tmp_path
    manifest = DistributedRun.load(root).manifest
    assert [member.rank for member in manifest.usable] == [0, 1]
    assert path.name.startswith(f"{manifest.name}.")


def test_the_command_takes_a_tar_of_one_trace(tmp_path: Path) -> None:
    path = archive(
        tmp_path / "one.tar.gz", **{"rank0.json": json.dumps(rank_trace(0).document()).encode()}
    )
    assert main(["analyze", str(path)]) == 0
    assert (tmp_path / "analysis_output" / "manifest.json").is_file()


def test_a_pattern_gives_the_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, rank in (("p9_4_step_3", 4), ("p9_7_step_3", 7), ("p9_x_step_3", 0)):
        built = rank_trace(rank, 8)
        built.header.pop("distributedInfo")
        built.write(tmp_path / f"{name}.json")
    pattern = str(tmp_path / "p9_*_step_3.json")
    assert list(ranks_of_pattern(pattern).values()) == [4, 7]
    out = tmp_path / "out"
    assert main(["analyze", "--pattern", pattern, "--output-dir", str(out), "--jobs", "1"]) == 0
    assert [m.rank for m in DistributedRun.load(out).manifest.usable] == [4, 7]
    capsys.readouterr()
    quoted = [str(tmp_path / "p9_[47]_*.json"), "--rank-by-order", "--jobs", "1"]
    assert main(["analyze", *quoted, "--output-dir", str(out)]) == 0
    with pytest.raises(JarvisError, match="exactly one"):
        ranks_of_pattern("a*b*.json")
    with pytest.raises(NoTracesError):
        ranks_of_pattern(str(tmp_path / "none_*.json"))
    with pytest.raises(SystemExit):
        main(["analyze"])
