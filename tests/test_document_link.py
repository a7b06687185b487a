"""A document question in a link: counts alone, back unchanged, and whatever cannot be used is named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcalc import Scenario, from_link
from kvcalc.document_link import DOCUMENT_FIELDS, document_fields, read_document_question, to_document_link
from kvcalc.document_size import DocumentQuestion

FIRST = DocumentQuestion.of_pages(12)


def link(**changes: str | None) -> str:
    fields = {**document_fields(FIRST), **changes}
    return "&".join(f"{key}={value}" for key, value in fields.items() if value is not None)


def test_scenario_and_question_open_from_one_link_without_a_note():
    question = DocumentQuestion.of_pages(120, questions_per_document=3, host_gib=256)
    text = to_document_link(Scenario.default(), question)
    assert from_link(text).scenario == Scenario.default()
    assert from_link(text).notes == ()
    found = read_document_question(f"https://example.org/?view=document&{text}")
    assert (found.question, found.notes) == (question, ())


def test_every_field_of_the_question_is_in_the_link():
    assert {field.name for field in DOCUMENT_FIELDS} == set(DocumentQuestion.model_fields)


@given(
    st.integers(1, 10**9),
    st.integers(1, 10**6),
    st.none() | st.integers(1, 10**6),
    st.sampled_from(["tokens", "estimate", "tokenizer", "images"]),
)
def test_any_question_comes_back(tokens, use, pages, counted):
    question = DocumentQuestion(
        tokens_low=max(1, tokens // 2),
        tokens_typical=tokens,
        tokens_high=tokens,
        pages=pages,
        counted=counted,
        documents_at_once=use,
        passages=use,
    )
    fields = document_fields(question)
    text = "&".join(f"{key}={value}" for key, value in fields.items())
    assert read_document_question(text).question == question


def test_a_link_without_a_document_asks_about_twelve_pages():
    found = read_document_question("view=document")
    assert (found.question, found.notes) == (FIRST, ())


def test_a_document_alone_leaves_the_default_scenario():
    found = from_link(f"view=document&{link()}")
    assert (found.scenario, found.notes) == (Scenario.default(), ())


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        ({"doc_questions": "many"}, "doc_questions", "expected a whole number, got 'many'"),
        ({"doc_questions": "0"}, "doc_questions", "from 1 to"),
        ({"doc_tokens": "99999999"}, "doc_tokens", "from tokens_low"),
        ({"doc_tokens": None}, "doc_tokens", "Three figures"),
        ({"doc_counted": "guessed"}, "doc_counted", "got 'guessed'"),
        ({"doc_pges": "3"}, "doc_pges", "Not a field of a document"),
    ],
)
def test_a_bad_field_is_named_and_the_rest_is_kept(change, field, says):
    found = read_document_question(link(doc_passages="9", **change))
    assert found.question.passages == 9
    (note,) = found.notes
    assert note.field == field
    assert says in note.text


@given(st.text(max_size=200))
def test_whatever_a_link_holds_it_opens(text):
    assert read_document_question(text).question.tokens_typical >= 1
    read_document_question(f"doc_tokens={text}&doc_counted={text}")
