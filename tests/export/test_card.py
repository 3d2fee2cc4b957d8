"""A model card shows names as they are, whatever they are."""

from dataclasses import replace

import pytest
from export_kinds import HOSTILE, KINDS, model

from protopinv.export.card import card
from protopinv.export.text import comment, identifier, markdown_text


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_card(kind: str) -> None:
    text = card(model(kind).model_, "a *name*", "1.2.3")
    assert text.startswith('---\nlibrary_name: "protopinv"\n')
    assert "# a \\*name\\*" in text
    without = card(replace(model(kind).model_, bank=None), "m", "1.2.3")
    assert "prototypes" not in without.partition("## Sizes")[2]


def test_names_cannot_leave_their_place() -> None:
    names = [*HOSTILE, "x"]
    text = card(replace(model("texts").model_, feature_names=names), "m", "1")
    assert "<script" not in text
    assert "</script" not in text
    listed = next(line for line in text.splitlines() if "their names" in line)
    assert listed.endswith(", x")  # a newline did not end the list
    assert markdown_text("a|b `c` [d](e) <i>") == r"a\|b \`c\` \[d\]\(e\) &lt;i&gt;"


def test_comments_and_identifiers_are_tame() -> None:
    assert "*/" not in comment("*/ int x; /*")
    assert "\n" not in comment("two\nlines")
    assert identifier("9 lives") == "model_9_lives"
    assert identifier("class") == "class"  # it is only ever the beginning of a name
    assert identifier("ünï") == "model__n_"
