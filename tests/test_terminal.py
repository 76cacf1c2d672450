"""No command prints control characters of a trace, a report or a file name."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from jarvis.cli import main
from jarvis.text.format import escaped
from tests.hostile import NASTY, write_hostile

EVIL = "\x1b]0;title\x07\x1b[2J\u202ex\u200b\r\u2028\x9b31m"


def assert_plain(printed: str) -> None:
    hidden = {c for c in printed if c != "\n" and not c.isprintable()}
    assert not hidden, printed


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder with a hostile trace, its run, its report and a home."""
    folder = tmp_path_factory.mktemp("terminal")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JARVIS_HOME", str(folder / f"home{EVIL}"))
        trace = write_hostile(folder).rename(folder / f"t{EVIL}.json")
        words = [str(trace), "--model", NASTY[18]]
        assert main(["analyze", *words, "--id", "--output-dir", str(folder / "run")]) == 0
        assert main(["report", str(trace), "--output-csvs-dir", str(folder / "csvs")]) == 0
        (folder / f"gpu{EVIL}.json").write_text(
            json.dumps(
                {
                    "name": f"X1 {EVIL}",
                    "mem_bw_gbps": 1000,
                    "memory_gb": 16,
                    "max_achievable_tflops": {"matrix_bf16": 10},
                }
            )
        )
        yield folder


def commands(folder: Path) -> list[list[str]]:
    """Return every command that prints its arguments or input."""
    trace, run, gpu = str(folder / f"t{EVIL}.json"), str(folder / "run"), f"gpu{EVIL}.json"
    missing, csvs = str(folder / f"none{EVIL}"), str(folder / "csvs")
    found = [
        ["analyze", trace, "--output-dir", str(folder / f"other{EVIL}")],
        ["analyze", trace, "--progress", "json", "--id"],
        ["analyze", csvs, "--output-dir", str(folder / f"of-report{EVIL}")],
        ["report", trace, "--output-xlsx-path", str(folder / f"r{EVIL}.xlsx")],
        ["compare", run, run, "-o", str(folder / f"c{EVIL}.xlsx")],
        ["tree", run, "--name", "*"],
        ["tree", run, "--name", f"no{EVIL}"],
        ["tree", run, "--uid", "40"],
        ["validate", run],
        ["export", run, "-o", str(folder / f"e{EVIL}.json")],
        ["replay", run, "--output", str(folder / f"p{EVIL}.zip")],
        ["hardware", "check", str(folder / gpu)],
        ["hardware", "add", str(folder / gpu)],
        ["hardware", "list"],
        ["hardware", "show", f"X1 {EVIL}"],
        ["reproject", run, "--platform", f"X1 {EVIL}", "--output-dir", str(folder / f"x{EVIL}")],
        ["list"],
        ["archive", "load", missing],
        ["audit"],
        ["config"],
        ["prune", "--dry-run"],
        *([command, missing] for command in ("analyze", "report", "tree", "validate", "pin")),
        ["push", missing, "--server", f"http://127.0.0.1:9/{EVIL}"],
        ["sample", "--output", f"{missing}/x"],
        ["remove", f"none{EVIL}"],
        ["validate", run, EVIL],
        [EVIL],
    ]
    with_json = ("tree", "list", "hardware", "validate", "compare", "export", "audit", "config")
    return [*found, *([*words, "--json"] for words in found if words[0] in with_json)]


def test_no_command_prints_a_control_character(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    printed = []
    for words in commands(folder):
        with suppress(SystemExit):  # argparse, for options that there are not
            main(words)
        output = capfd.readouterr()
        assert_plain(output.out + output.err)
        printed.append(output.out + output.err)
        if "--json" in words and output.out:
            json.loads(output.out)
    assert sum(r"\u001b" in text for text in printed) > 20


def test_escapes_are_those_of_json() -> None:
    text = "".join(map(chr, (*range(0x250), 0x202E, 0x2066, 0xD800, 0xE0041, 0xFEFF)))
    shown = escaped(text.replace('"', "").replace("\\", ""))
    assert shown.isprintable()
    assert json.loads(f'"{shown}"') == text.replace('"', "").replace("\\", "")
