"""Every check that the specification asks for is made: of the data, or of the layout in tests."""

from jarvis.validation import CHECKS, comparison, files, findings, totals
from jarvis.validation.check import Find
from tests.layout import analysis_report as report
from tests.layout import checks, figures, findings_files, wording
from tests.layout import comparative_report as comparative
from tests.layout import fair_report as fair

CHECKED: dict[str, tuple[Find, ...]] = {
    "V1": (findings_files.recommendations_come_before_details,),
    "V2": (findings_files.findings_are_recommendations,),
    "V3": (findings_files.recommendations_have_their_labels,),
    "V4": (findings_files.details_match_recommendations,),
    "V5": (
        findings_files.details_have_their_table,
        comparative.comparative_details_have_a_table,
    ),
    "V6": (findings_files.tables_quote_the_metrics,),
    "V7": (findings_files.impacts_are_marked,),
    "V8": (findings_files.details_estimate_their_impact,),
    "V9": (totals.category_times_add_up,),
    "V10": (files.findings_are_in_the_folder_of_their_tier,),
    "V11": (totals.priorities_are_sorted_and_add_up,),
    "V12": (report.analysis_report_has_its_parts,),
    "V13": (report.analysis_report_has_its_metrics,),
    "V14": (wording.placeholders_are_filled,),
    "V15": (report.analysis_quotes_the_metrics,),
    "V16": (report.fusion_impacts_name_their_coverage,),
    "V17": (
        report.compute_items_are_the_findings,
        report.top_operations_are_the_priorities,
        report.analysis_details_are_marked,
    ),
    "V18": (wording.reports_are_text,),
    "E1": (files.folders_are_there,),
    "E2": (files.metadata_files_are_there,),
    "E3": (totals.model_facts_are_complete,),
    "E4": (files.sheets_are_there,),
    "E5": (files.prepared_files_are_there,),
    "E6": (files.findings_are_in_the_folder_of_their_tier,),
    "E7": (files.findings_are_in_the_folder_of_their_tier,),
    "E8": (figures.images_are_there,),
    "E9": (
        report.analysis_report_has_its_parts,
        report.analysis_report_has_its_metrics,
        comparative.comparative_parts_are_in_order,
    ),
    "E10": (
        figures.reports_give_the_shares_of_the_timeline,
        totals.shares_equal_the_timeline,
        comparative.comparative_summary_gives_the_steps,
    ),
    "E11": (report.analysis_items_have_their_labels,),
    "E12": (figures.hardware_is_named,),
    "E13": (report.appendix_has_the_model,),
    "M1": (report.top_operations_are_the_priorities,),
    "M2": (report.analysis_impacts_are_marked,),
    "M3": (report.analysis_impacts_are_marked,),
    "S1": (fair.summary_is_short, comparative.comparative_summary_is_short),
    "S2": (
        fair.cards_are_short,
        fair.cards_are_complete,
        comparative.comparative_cards_are_complete,
    ),
    "S3": (wording.words_are_vendor_neutral,),
    "S4": (wording.claims_are_what_a_trace_can_show,),
    "S5": (wording.nobody_wins,),
    "S6": (files.reports_are_there, fair.facts_occur_once),
    "S7": (fair.efficiencies_above_the_peak_are_marked,),
    "S8": (findings.impacts_stay_within_their_share,),
    "S9": (
        findings.savings_add_up_to_less_than_the_total,
        comparison.savings_of_a_comparison_are_disjoint,
    ),
    "S10": (files.json_is_strict,),
}

NOT_OF_ONE_RUN = {
    "Q1": "compares CSV files with a reference report: tests/test_conformance.py does",
    "Q2": "compares recommendations with a reference report, which no run directory holds",
    "Q3": "compares figures with a reference report, which no run directory holds",
}
"""V16 has no comparative form: what the reference alone fuses is a finding like any other."""


def numbered(letter: str, count: int) -> set[str]:
    return {f"{letter}{number}" for number in range(1, count + 1)}


def test_every_tag_is_checked_or_excused() -> None:
    asked = numbered("V", 18) | numbered("E", 13) | numbered("Q", 3) | numbered("M", 3)
    asked |= numbered("S", 10)
    assert set(CHECKED) | set(NOT_OF_ONE_RUN) == asked
    assert not set(CHECKED) & set(NOT_OF_ONE_RUN)


def test_every_tag_is_checked_by_a_check_that_runs() -> None:
    running = {check.find for check in (*CHECKS, *checks.CHECKS)}
    for tag, finds in CHECKED.items():
        assert finds, tag
        assert set(finds) <= running, tag


def test_names_and_descriptions_are_for_readers() -> None:
    names = [check.name for check in CHECKS]
    assert len(set(names)) == len(names)
    for check in CHECKS:
        assert check.description.endswith("."), check.name
        assert "\n" not in check.description
        assert 20 < len(check.description) < 160, check.name
