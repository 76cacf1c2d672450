"""Categories from a user's file: claimed rows, findings, files, and what their faults do not."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from jarvis import cli
from jarvis.analyses import load_analyses, registry
from jarvis.analyses.registry import load_registry
from jarvis.analyses.runner import run_analyses, split_operations
from jarvis.core.workspace import RunPaths
from jarvis.extensions import Extensions, load_extensions
from jarvis.findings import Status
from jarvis.hardware import load_hardware
from jarvis.pipeline import analyze
from jarvis.run import Run
from jarvis.text.messages import to_text
from jarvis.validation import is_valid, validate
from tests.builders import trace
from tests.extensions.conftest import SCAN, Point, Write, report, scans

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "write-an-extension.md"

SLOW = '''
    from jarvis.analyses.base import Analysis, Claim, Panel
    from jarvis.findings import Finding, OpRef, Priority
    from jarvis.schemas import NUMBER, Column

    def slow(data):
        """Scans that run long.

        Symptom: a scan runs longer than others.
        Rule: every scan.
        Threshold: none.
        """
        for row in data.operations.iter_rows(named=True):
            yield Finding(
                check="slow",
                category="scans",
                title="A scan runs long",
                operations=(OpRef(uid=row["uid"], name=row["name"], operation_count=1),),
                priority_local=Priority.LOW,
                priority=Priority.LOW,
                issue="Scans run long.",
                algorithmic="Scan less.",
                kernel="Scan faster.",
            )

    def with_rows(rows, compute_units):
        return rows.with_columns(scan_rows=rows["kernel_time_us"] * 2)

    ANALYSES = {
        "scans": Analysis(
            title="Scans",
            icon=":material/radar:",
            claim=Claim(op_categories=("Scan_fwd",), op_names=("*::peek",)),
            checks=(slow,),
            classify=with_rows,
            details=(Column("scan_rows", "Scan rows", NUMBER, "rows"),),
            measure=lambda data: {"scans": data.operations.height},
            panels=(
                Panel(kind="roofline", title="Scans under the roofline"),
                Panel(kind="bars", title="Rows of scans", x="kernel_time_us", y="scan_rows"),
            ),
        )
    }
'''


def analyzed(write: Write, tmp_path: Path, text: str) -> Run:
    source = scans().write(tmp_path / "trace.json")
    return analyze(source, output_dir=tmp_path / "run", extension_file=write(text))


def test_a_category_of_a_file_claims_checks_and_writes(write: Write, tmp_path: Path) -> None:
    run = analyzed(write, tmp_path, SCAN + SLOW)
    assert run.manifest.extension_failures == ()
    result = run.results["scans"]
    assert (result.status, result.row_count, result.metrics) == (Status.OK, 2, {"scans": 2})
    assert result.gpu_time_ms == pytest.approx(0.021)  # 20 and 1 us
    assert {to_text(finding.title) for finding in result.findings} == {"A scan runs long"}
    rows = run.category_operations("scans")
    assert dict(rows.select("name", "scan_rows").rows()) == {
        "mylib::scan": 40.0,
        "mylib::peek": 2.0,
    }
    assert "mylib::peek" not in run.category_operations("other")["name"].to_list()
    paths = RunPaths(tmp_path / "run")
    assert "A scan runs long" in paths.findings("scans", "compute").read_text(encoding="utf-8")
    assert "scan_rows" in paths.operations_csv("scans").read_text(encoding="utf-8")
    assert "Scans" in paths.standalone_report("fair").read_text(encoding="utf-8")
    problems = [o for o in validate(paths.root) if not is_valid([o])]
    assert problems == []


def test_a_run_has_the_page_without_the_code(write: Write, tmp_path: Path) -> None:
    analyzed(write, tmp_path, SCAN + SLOW)
    loaded = Run.load(tmp_path / "run")
    analysis = loaded.analyses["scans"]
    assert (analysis.title, analysis.icon, analysis.tier) == (
        "Scans",
        ":material/radar:",
        "compute",
    )
    assert [panel.title for panel in analysis.panels] == [
        "Scans under the roofline",
        "Rows of scans",
    ]
    assert [(c.name, c.label, c.unit) for c in analysis.details] == [
        ("scan_rows", "Scan rows", "rows")
    ]
    assert analysis.claim is not None
    assert analysis.claim.op_names == ("*::peek",)
    assert analysis.checks == ()
    assert list(loaded.analyses) == ["scans" if k == "scans" else k for k in loaded.results]


def test_the_example_of_the_guide_works(write: Write, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    file = tmp_path / "guide.py"
    file.write_text("\n".join(blocks), encoding="utf-8")
    built = trace(device="AMD Instinct MI300X")
    n = 4096
    built.op("mylib::swiglu", [[n, n], [n, n]]).launches("swiglu", us=200).up()
    built.op("mylib::swiglu_backward", [[n, n]]).launches("swiglu_back", us=50)
    run = analyze(
        built.write(tmp_path / "trace.json"), output_dir=tmp_path / "run", extension_file=file
    )
    assert run.manifest.extension_failures == run.manifest.extension_notes == ()
    assert run.results["swiglu"].row_count == 2
    row = run.table("operations").filter(name="mylib::swiglu").row(0, named=True)
    assert (row["flops"], row["bytes"], row["category"]) == (6.0 * n * n, 6.0 * n * n, "swiglu")
    # 6 bytes for each of n * n elements in 200 us, of 5.3 TB/s
    peak = load_hardware().get("MI300X").tb_per_s
    efficiency_pct = 100 * (6 * n * n / 200e-6 / 1e12) / peak
    assert run.results["swiglu"].efficiency_pct == pytest.approx(efficiency_pct)
    assert [f.check for f in run.results["swiglu"].findings] == ["low_efficiency"]
    assert {"swiglu_fwd"} <= set(run.manifest.sheets)


def test_categories_of_two_analyses_in_one_process_do_not_meet(
    write: Write, tmp_path: Path
) -> None:
    source = scans().write(tmp_path / "trace.json")
    plain = analyze(source, output_dir=tmp_path / "before")
    file = write(SCAN + SLOW)
    added = analyze(source, output_dir=tmp_path / "with", extension_file=file)
    other = write(SCAN + SLOW.replace('title="Scans"', 'title="Prefix sums"'))
    changed = analyze(source, output_dir=tmp_path / "changed", extension_file=other)
    again = analyze(source, output_dir=tmp_path / "after")
    assert ["scans" in run.results for run in (plain, added, changed, again)] == [
        False,
        True,
        True,
        False,
    ]
    assert [run.analyses["scans"].title for run in (added, changed)] == ["Scans", "Prefix sums"]
    assert plain.results == again.results
    assert plain.table("operations").equals(again.table("operations"))
    assert "scans" not in load_analyses()
    assert load_registry().manifests == {}


def test_a_system_analysis_reads_the_tables_that_it_names(write: Write, tmp_path: Path) -> None:
    text = '''
        from jarvis.analyses.base import Analysis, Panel, Target
        from jarvis.findings import Finding, Priority

        def gaps(data):
            """Gaps.

            Symptom: gaps.
            Rule: any.
            Threshold: none.
            """
            yield Finding(
                check="gaps", category="gaps", title=f"{data.tables['gpu_work'].height} events",
                priority_local=Priority.LOW, priority=Priority.LOW,
                issue="i", algorithmic="a", kernel="k",
            )

        ANALYSES = {
            "gaps": Analysis(
                title="Gaps", icon=":material/radar:", checks=(gaps,), needs=("gpu_work",),
                target=Target("Aim", "meaning", 90.0, lambda totals, pct: 1.0, "gaps"),
            )
        }
    '''
    run = analyzed(write, tmp_path, text)
    assert run.results["gaps"].tier == "system"
    assert [to_text(finding.title) for finding in run.results["gaps"].findings] == ["3 events"]
    assert run.manifest.extension_notes == (
        "The slider of gaps in mine.py is ignored: it would need code.",
    )


def loaded(write: Write, changes: dict[str, str]) -> Extensions:
    text = SLOW
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    return load_extensions(write(text))


REFUSED = {
    "a key of ours": ({'"scans": A': '"gemm": A'}, "an analysis named gemm is already registered"),
    "a key that is a page": ({'"scans": A': '"overview": A'}, "overview is a page of Jarvis"),
    "a key that names no file": ({'"scans": A': '"../x": A'}, "'../x' is not a valid key"),
    "a key that is no text": ({'"scans": A': "5: A"}, "5 is not a valid key"),
    "a claim of ours": ({'("Scan_fwd",)': '("GEMM",)'}, "GEMM is already claimed by gemm"),
    "a claim on the rest": (
        {'op_names=("*::peek",)': "rest=True"},
        "the rest is already claimed by other",
    ),
    "a claim that is a text": ({'("Scan_fwd",)': '"Scan_fwd"'}, "claim.op_categories"),
    "no title": ({'title="Scans"': 'title=""'}, "title: String should have at least 1"),
    "a title that is no text": (
        {'title="Scans"': "title=5"},
        "title: Input should be a valid string",
    ),
    "no icon": ({'":material/radar:"': '"radar"'}, "icon: String should match pattern"),
    "no checks": ({"checks=(slow,)": "checks=()"}, "needs at least one check"),
    "checks that are none": ({"checks=(slow,)": "checks=5"}, "'int' object is not iterable"),
    "a check without its rule": ({"Rule: every scan.": ""}, "slow lacks Rule:"),
    "a panel of no kind": ({'kind="bars"': 'kind="pie"'}, "panels.1.kind: Input should be"),
    "a panel of no column": ({'y="scan_rows"': 'y="nothing"'}, "shows nothing, which operations"),
    "a panel without y": ({', y="scan_rows"': ""}, "shows None, which operations does not have"),
    "a panel of a table not asked for": (
        {'x="kernel_time_us"': 'source="gpu_work", x="ts_ns"'},
        "shows gpu_work, which is not among the needs",
    ),
    "a column of no kind": (
        {"NUMBER, Col": "NUMBER, KERNELS, Col", 'NUMBER, "rows"': "KERNELS"},
        "details.0.kind: Value error, use one of",
    ),
    "no analysis": ({'"scans": Analysis(': '"scans": dict('}, "scans is dict, not an Analysis"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_malformed_category_is_left_out_and_reported(write: Write, what: str) -> None:
    changes, sentence = REFUSED[what]
    extensions = loaded(write, changes)
    (output,) = extensions.failures
    assert sentence in output
    assert "mine.py" in output
    assert output.endswith("is ignored.")
    assert "\n" not in output
    assert list(extensions.analyses.analyses) == list(load_analyses())


def test_what_is_no_dict_is_reported(write: Write) -> None:
    (output,) = load_extensions(write("ANALYSES = [1]")).failures
    assert output == "ANALYSES of mine.py is list, not a dict."


FAILING = {
    "a check that raises": ({"for row in": "1 / 0\n        for row in"}, "ZeroDivisionError"),
    "a check that ends the program": (
        {"for row in": "raise SystemExit(3)\n        for row in"},
        "SystemExit: 3",
    ),
    "a check that yields something else": ({"yield Finding(": "yield dict("}, "yielded dict"),
    "a finding of another category": (
        {'category="scans"': 'category="gemm"'},
        "instead of 'scans'",
    ),
    "a finding about another row": (
        {'uid=row["uid"]': "uid=10**6"},
        "operations of other categories",
    ),
    "a finding that no file can hold": ({'"Scan less."': '"\\ud800"'}, "UnicodeEncodeError"),
    "rows that are no table": ({"return rows.with": "return 5\n        rows.with"}, "returned int"),
    "rows that are fewer": (
        {"* 2)": "* 2).head(1)"},
        "did not return its input rows",
    ),
    "rows in another order": (
        {"return rows.with": "return rows.reverse().with"},
        "did not return its input rows",
    ),
    "columns of objects": (
        {"scan_rows=rows": "x=__import__('polars').Series([object()] * 2), scan_rows=rows"},
        "of Python objects",
    ),
    "metrics that are no dict": ({'{"scans": data.operations.height}': "5"}, "returned int"),
    "metrics that JSON cannot hold": ({"data.operations.height}": "{1}}"}, "not JSON serializable"),
}


@pytest.mark.parametrize("what", FAILING)
def test_a_category_that_fails_leaves_the_others_alone(write: Write, what: str) -> None:
    changes, sentence = FAILING[what]
    text = SCAN + SLOW
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    extensions = load_extensions(write(text))
    assert extensions.failures == ()
    found, analyses = report(extensions), extensions.analyses.analyses
    outcomes = run_analyses(found, analyses, split_operations(found, analyses))
    result = outcomes["scans"].result
    assert result.status is Status.ERROR
    assert sentence in (result.error or "")
    assert outcomes["gemm"].result.status is Status.OK


def test_a_fault_names_the_line_of_the_file(write: Write, tmp_path: Path) -> None:
    text = dedent(SCAN + SLOW).replace("for row in", "1 / 0\n    for row in")
    run = analyzed(write, tmp_path, text)
    line = 1 + text.splitlines().index("    1 / 0")
    assert f"mine.py, line {line}: ZeroDivisionError" in (run.results["scans"].error or "")
    assert set(run.category_operations("scans")["name"]) == {"mylib::scan", "mylib::peek"}
    rough = RunPaths(tmp_path / "run").standalone_report("rough").read_text(encoding="utf-8")
    assert "The analysis Scans failed" in rough


def test_values_of_jarvis_stay_its_own(write: Write, tmp_path: Path) -> None:
    text = (SCAN + SLOW).replace(
        "scan_rows=rows", "kernel_time_us=rows['uid'] * 0.0, scan_rows=rows"
    )
    run = analyzed(write, tmp_path, text)
    assert run.results["scans"].gpu_time_ms == pytest.approx(0.021)


@pytest.fixture
def packages() -> Iterator[list[Point]]:
    """The entry points of analyses that seem to be installed."""
    points: list[Point] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            registry, "entry_points", lambda group: points if group == "jarvis.analyses" else []
        )
        load_registry.cache_clear()
        yield points
    load_registry.cache_clear()


def test_analyses_of_packages_are_contained_too(
    write: Write, packages: list[Point], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, dict[str, object]] = {}
    exec(dedent(SLOW.replace("for row in", "raise SystemExit(3)\n        for row in")), names)
    packages += [Point("scans", names["ANALYSES"]["scans"]), Point("bad", ImportError("no scans"))]
    source = scans().write(tmp_path / "trace.json")
    words = ["analyze", str(source), "--extension-file", str(write(SCAN)), "--output-dir"]
    assert cli.main([*words, str(tmp_path / "run")]) == 0
    run = Run.load(tmp_path / "run")
    assert run.results["scans"].error == "ExtensionFaultError: scans: SystemExit: 3"
    assert [card.key for card in run.manifest.added_analyses] == ["scans"]
    lines = capsys.readouterr().err.splitlines()
    assert "warning: The analysis bad cannot be used: ImportError: no scans." in lines


def test_the_run_of_a_package_has_its_page_without_it(
    write: Write, packages: list[Point], tmp_path: Path
) -> None:
    names: dict[str, dict[str, object]] = {}
    exec(dedent(SLOW), names)
    packages.append(Point("scans", names["ANALYSES"]["scans"]))
    load_registry.cache_clear()
    analyzed(write, tmp_path, SCAN)
    packages.clear()
    load_registry.cache_clear()
    assert "scans" not in load_analyses()
    assert Run.load(tmp_path / "run").analyses["scans"].title == "Scans"


def test_faults_are_reported_on_stderr_and_in_json(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = scans().write(tmp_path / "trace.json")
    text = SCAN + SLOW.replace("for row in", "print('hello')\n        1 / 0\n        for row in")
    text += "\n    print('loaded')\n    ANALYSES['gemm'] = ANALYSES['scans']\n"
    words = ["analyze", str(source), "--extension-file", str(write(text)), "--json"]
    assert cli.main([*words, "--output-dir", str(tmp_path / "run")]) == 0
    out, err = capsys.readouterr()
    warnings = json.loads(out)["warnings"]
    refused = "mine.py: an analysis named gemm is already registered. 'gemm' is ignored."
    assert refused in warnings
    (failed,) = [output for output in warnings if output.startswith("The analysis Scans failed: ")]
    assert "ZeroDivisionError" in failed
    lines = err.splitlines()
    assert {f"warning: {refused}", f"warning: {failed}", "loaded", "hello"} <= set(lines)
