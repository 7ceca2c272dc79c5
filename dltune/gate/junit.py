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
    tags = {
        "pass": "system-out",
        "fail": "failure",
        "undecided": "failure" if strict else "skipped",
    }
    told = [tags[verdict.outcome] for verdict in result.verdicts]
    counts = {
        "tests": str(len(result.verdicts)),
        "failures": str(told.count("failure")),
        "errors": "0",
        "skipped": str(told.count("skipped")),
        "time": f"{result.seconds:.3f}",
    }
    root = ET.Element("testsuites", counts)
    suite = ET.SubElement(root, "testsuite", {"name": "dltune gate", **counts,
                                              "timestamp": result.created})  # fmt: skip
    for verdict, tag in zip(result.verdicts, told, strict=True):
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
        if tag == "failure":
            ET.SubElement(case, tag, {"message": text, "type": verdict.outcome}).text = text
        elif tag == "skipped":
            ET.SubElement(case, tag, {"message": text})
        else:
            ET.SubElement(case, tag).text = text
    ET.indent(root)
    rendered: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return rendered + b"\n"
