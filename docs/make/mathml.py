"""A Markdown extension: formulas become MathML when the site is built, so that a page needs no script to show them."""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.extensions import Extension
from markdown.postprocessors import Postprocessor

# What pymdownx.arithmatex leaves in its generic form.
FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\s*\\[(\[](?P<tex>.*?)\\[)\]]\s*</(?P=tag)>',
    re.DOTALL,
)
# What latex2mathml does not know, in words that it does.
REPLACED = {
    r"\\[bB]igg?l\b": r"\\left",
    r"\\[bB]igg?r\b": r"\\right",
    r"\\[bB]igg?\b": "",
    r"\\arg\b": r"\\mathrm{arg}",
    r"\\_": "_",
}


def mathml(tex: str, *, block: bool) -> str:
    """A formula of TeX as MathML. One on lines of its own may be wider than a phone, and is then scrolled."""
    for pattern, words in REPLACED.items():
        tex = re.sub(pattern, words, tex)
    formula = convert(tex.strip(), display="block" if block else "inline")
    return f'<div class="formula">{formula}</div>' if block else formula


class _Formulas(Postprocessor):
    def run(self, text: str) -> str:
        return FORMULA.sub(lambda found: mathml(html.unescape(found["tex"]), block=found["tag"] == "div"), text)


class MathML(Extension):
    """Formulas in MathML."""

    def extendMarkdown(self, md: Markdown) -> None:
        # After everything that puts stashed pieces of HTML back.
        md.postprocessors.register(_Formulas(md), "mathml", -10)


def makeExtension(**settings: Any) -> MathML:
    """What Markdown calls to load an extension by its name."""
    return MathML(**settings)
