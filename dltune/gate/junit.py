"""A result as JUnit XML, which every CI shows: a test for each limit."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from dltune.documents.gate import Result
from dltune.gate import figures
from dltune.visible import visible


def render(result: Result) -> bytes:
    """UTF-8 XML. A limit that fails is a failure; one that is undecided is skipped, or a failure
    where that is what undecided means. Text is escaped; what XML cannot hold is written out."""
    strict = not result.passed and result.outcome == "undecided"
    failed = sum(v.outcome == "fail" or (strict and v.outcome == "undecided")
                 for v in result.verdicts)  # fmt: skip
    skipped = sum(v.outcome == "undecided" for v in result.verdicts) * (not strict)
    counts = {
        "tests": str(len(result.verdicts)),
        "failures": str(failed),
        "errors": "0",
        "skipped": str(skipped),
        "time": f"{result.seconds:.3f}",
    }
    root = ET.Element("testsuites", counts)
    suite = ET.SubElement(root, "testsuite", {"name": "dltune gate", **counts,
                                              "timestamp": result.created})  # fmt: skip
    for verdict in result.verdicts:
        case = ET.SubElement(
            suite,
            "testcase",
            {
                "classname": f"dltune.gate.{verdict.over}",
                "name": f"{visible(verdict.metric)} at most {figures.limit(verdict)}",
                "time": "0",
            },
        )
        text = visible(figures.sentence(verdict), 1000)
        if verdict.outcome == "fail" or (strict and verdict.outcome == "undecided"):
            ET.SubElement(case, "failure", {"message": text, "type": verdict.outcome}).text = text
        elif verdict.outcome == "undecided":
            ET.SubElement(case, "skipped", {"message": text})
        else:
            ET.SubElement(case, "system-out").text = text
    ET.indent(root)
    rendered: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return rendered + b"\n"
