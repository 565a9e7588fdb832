"""A Python that runs blocks of one page, one after the other, in one namespace.

python -m tests.docs.interpreter PAGE LINE ...      runs those at these lines; ranks of a page do so
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path

from sybil import Document, Region
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown.lexers import RawFencedCodeBlockLexer

from tests.docs.pages import FENCE

IMPORTED = ("tests.docs.interpreter", "pandas", "torch._dynamo", "torch.distributed", "torch.nn.parallel", "voxload")
"""What is imported once for all pages."""
SCRIPT = "from tests.docs.interpreter import answer\nanswer()\n"
"""What a page's process does."""


def _blocks(document: Document) -> Iterable[Region]:
    for region in RawFencedCodeBlockLexer(FENCE)(document):
        region.parsed, region.evaluator = region.lexemes["source"], PythonEvaluator()
        yield region


class _Namespace:
    """The blocks of a page, by their lines."""

    def __init__(self, page: str) -> None:
        self._examples = {example.line: example for example in Document.parse(page, _blocks)}

    def run(self, line: int) -> None:
        """Run one block; whatever it raises goes on."""
        self._examples[line].evaluate()


def answer() -> None:
    """Run what standard input names, a line of JSON each; answer each with what went wrong, or nothing."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what blocks print goes nowhere
    namespace = _Namespace(sys.argv[1])
    sys.path.insert(0, str(Path.cwd()))
    for text in sys.stdin:
        error = ""
        try:
            namespace.run(json.loads(text))
        except BaseException:  # noqa: BLE001 - it is told
            error = traceback.format_exc()
        answers.write(json.dumps(error) + "\n")
        answers.flush()


if __name__ == "__main__":
    namespace = _Namespace(sys.argv[2])
    os.chdir(sys.argv[1])
    for number in sys.argv[3:]:
        namespace.run(int(number))
