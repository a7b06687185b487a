"""Counting files: what is counted, what is refused and how it is said, and that memory stays flat."""

import itertools
import tracemalloc
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from kvcalc.document_size import DocumentCount
from kvcalc.errors import DocumentError
from kvcalc.units import MIB
from kvcalc.uploads import check_size, count
from kvcalc.uploads import docx as docx_reader
from kvcalc.uploads import pdf as pdf_reader
from kvcalc.uploads.tally import sample_range
from tests.documents import SENTENCE, WORD, docx, paragraph, pdf, pdf_bomb, zip_bomb

PAGE = SENTENCE * 10
"""Text of one page; pypdf gives it back without the blank at its end."""


def words_tokenizer() -> str:
    """A tokenizer.json whose every word or sign is one token."""
    tokenizer = Tokenizer(WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    return tokenizer.to_str()


def texts(found: DocumentCount) -> str:
    return " ".join(note.text for note in found.notes)


def refusal(content: bytes, name: str = "file") -> DocumentError:
    with pytest.raises(DocumentError) as refused:
        count(content, name)
    return refused.value


def peak_bytes(call) -> int:
    """Most memory a call holds at once, beyond what was held before."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_pdf_is_counted_page_by_page():
    found = count(pdf(3), "report.pdf")
    assert (found.kind, found.pages, found.pages_read, found.scanned_pages) == ("PDF", 3, 3, 0)
    assert found.words == 3 * len(PAGE.split())
    assert 3 * (len(PAGE) - 1) <= found.characters <= 3 * len(PAGE)
    assert found.tokens_low < found.tokens_typical < found.tokens_high
    assert found.counted == "estimate"
    assert "2.7 to 5" in found.method
    assert (found.page_width_points, found.page_height_points) == (612, 792)


def test_the_models_own_tokenizer_gives_one_figure():
    found = count(b"one two three\nfour", "a.txt", tokenizer_json=words_tokenizer())
    assert (found.tokens_low, found.tokens_typical, found.tokens_high) == (4, 4, 4)
    assert found.counted == "tokenizer"


def test_a_pdf_read_whole_by_the_tokenizer_has_no_range():
    found = count(
        pdf(2, "one two three four five six seven eight nine ten eleven"), "a.pdf", tokenizer_json=words_tokenizer()
    )
    assert (found.tokens_low, found.tokens_high) == (22, 22)


def test_a_file_that_is_no_tokenizer_is_refused():
    with pytest.raises(DocumentError, match="tokenizer"):
        count(b"words", "a.txt", tokenizer_json="{}")


def test_5000_pages_are_sampled_evenly_and_memory_stays_flat():
    content = pdf(5_000)
    found = count(content, "long.pdf")
    assert found.pages == 5_000
    assert found.pages_read == 300
    assert "300 of 5,000 pages, evenly spread" in texts(found)
    assert found.words == 5_000 * len(PAGE.split())
    assert peak_bytes(lambda: count(content, "long.pdf")) < 32 * MIB


def test_pages_are_read_in_an_order_that_spreads_from_the_start():
    order = pdf_reader.spread(1_000, 300)
    assert len(set(order)) == 300
    for read in (2, 10, 100, 300):
        start = sorted(order[:read])
        gaps = [after - before for before, after in itertools.pairwise([*start, 1_000])]
        assert max(gaps) <= 4 * 1_000 / read


def test_when_time_runs_out_the_pages_read_stand_for_all():
    ticks = itertools.count(0.0, 1.0)
    found = count(pdf(100), "slow.pdf", clock=lambda: next(ticks))
    assert found.pages == 100
    assert 1 <= found.pages_read < 100
    assert texts(found).startswith(f"Time ran out: {found.pages_read} of 100 pages")
    assert found.words == 100 * len(PAGE.split())


def test_a_sample_of_unequal_pages_has_a_range_and_a_whole_has_none():
    # mean 15, standard deviation 5.77 over 4 pages: 2 x 5.77 / 2 x 100 pages = 577 either way
    low, typical, high = sample_range([10, 20, 10, 20], 100)
    assert typical == 1_500
    assert (low, high) == (1_500 - 577, 1_500 + 577)
    assert sample_range([10, 20], 2) == (30, 30, 30)


def test_a_script_in_a_pdf_is_named_and_not_run():
    found = count(pdf(1, script="app.alert('hello')"), "script.pdf")
    assert "script. It was not run." in texts(found)
    assert "alert" not in found.model_dump_json()
    assert "script" not in texts(count(pdf(1), "plain.pdf"))


def test_an_encrypted_pdf_says_so():
    assert str(refusal(pdf(1, user="secret"), "locked.pdf")) == (
        "document: expected a PDF without a password, got 'locked.pdf, encrypted'. Save an unlocked copy."
    )


def test_a_pdf_locked_by_its_owner_alone_opens():
    assert count(pdf(2, user=""), "a.pdf").pages == 2


def test_scanned_pages_are_counted_apart():
    found = count(pdf(3, text=""), "scan.pdf")
    assert (found.pages, found.scanned_pages, found.tokens_typical) == (3, 3, 0)
    assert "look scanned" in texts(found)


@pytest.mark.parametrize(
    "content", [pdf(20)[:2_000], b"%PDF-1.7\n" + bytes(range(256)) * 8, b"%PDF-1.7\nxref\ntrailer"]
)
def test_a_damaged_pdf_says_so(content):
    assert "that can be read" in str(refusal(content, "broken.pdf"))


def test_a_page_that_unpacks_without_end_counts_as_one_without_text():
    content = pdf_bomb(400)
    assert len(content) < MIB
    assert count(content, "bomb.pdf").scanned_pages == 1
    assert peak_bytes(lambda: count(content, "bomb.pdf")) < 80 * MIB


def test_one_page_without_readable_content_does_not_lose_the_others():
    content = pdf(3).replace(b"BT /F1 12 Tf", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 1)
    found = count(content, "a.pdf")
    assert found.pages == 3
    assert found.words >= 2 * len(PAGE.split())


@pytest.mark.parametrize("content", [b"", b" \n\t ", b"\0\0\0"])
def test_an_empty_file_says_so(content):
    assert "empty" in str(refusal(content))


def test_a_file_is_refused_by_its_size_before_it_is_read():
    check_size("fits.pdf", 50 * MIB)
    with pytest.raises(DocumentError, match="at most 50 MiB"):
        check_size("huge.pdf", 50 * MIB + 1)


def test_a_name_of_a_million_letters_is_cut():
    message = str(refusal(b"", "x" * 1_000_000))
    assert len(message) < 200


def test_a_name_is_never_a_path():
    assert "secret" not in str(refusal(b"", "/home/secret/a.pdf"))


def test_utf8_text_is_read_as_such():
    found = count("Größe und Maß ".encode() * 100, "a.md")
    assert (found.kind, found.pages, found.characters, found.words) == ("text", None, 1_400, 300)
    assert found.notes == ()


def test_latin_1_text_is_read_and_named():
    found = count("Größe und Maß ".encode("latin-1") * 100, "a.txt")
    assert (found.characters, found.words) == (1_400, 300)
    assert "read as Windows-1252" in texts(found)


def test_bytes_that_windows_1252_lacks_are_latin_1():
    found = count(b"caf\xe9 \x81 " * 100, "a.txt")
    assert "read as Latin-1" in texts(found)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_marked_encodings_are_read(encoding):
    assert count("two words".encode(encoding), "a.txt").characters == 9


def test_words_are_not_cut_where_pieces_meet():
    assert count(b"word " * 300_000, "a.txt").words == 300_000


def test_a_long_text_takes_little_memory():
    content = b"some words in a line\n" * (20 * MIB // 21)
    assert peak_bytes(lambda: count(content, "a.txt")) < 24 * MIB + len(content)


@pytest.mark.parametrize(
    "content", [bytes(range(256)) * 100, b"\x89PNG\r\n\x1a\n" + bytes(5_000), b"\xd0\xcf\x11\xe0" + bytes(512)]
)
def test_another_kind_of_file_is_refused(content):
    assert "PDF, DOCX, Markdown or text" in str(refusal(content))


def test_a_docx_is_counted_with_its_notes_and_without_what_it_says_twice():
    box = (
        '<mc:AlternateContent xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006">'
        f"<mc:Choice>{paragraph('in a box')}</mc:Choice><mc:Fallback>{paragraph('in a box')}</mc:Fallback>"
        "</mc:AlternateContent>"
    )
    deleted = "<w:p><w:r><w:delText>gone</w:delText></w:r></w:p>"
    control = f"<w:sdt><w:sdtContent>{paragraph('in a control')}</w:sdtContent></w:sdt>"
    content = docx(paragraph("one two") + box + deleted + control, footnotes=paragraph("a note"))
    found = count(content, "a.docx")
    assert found.kind == "DOCX"
    assert found.words == 2 + 3 + 3 + 2
    assert found.characters == len("one two\nin a box\nin a control\na note\n")


def test_a_word_cut_over_two_runs_is_one_word():
    content = docx("<w:p><w:r><w:t>hel</w:t></w:r><w:r><w:t>lo</w:t></w:r></w:p>")
    assert count(content, "a.docx").words == 1


def test_a_zip_bomb_is_refused_before_it_is_unpacked():
    content = zip_bomb(300)
    assert len(content) < MIB
    assert "unpacks to 300 MiB or more" in str(refusal(content, "bomb.docx"))
    assert peak_bytes(lambda: refusal(content)) < 4 * MIB


def test_a_bomb_that_keeps_its_claim_modest_is_stopped_while_it_unpacks(monkeypatch):
    monkeypatch.setattr(docx_reader, "_MOST_RATIO", 10**9)
    monkeypatch.setattr(docx_reader, "_MOST_XML_BYTES", 2 * MIB)
    content = zip_bomb(64)
    assert peak_bytes(lambda: refusal(content)) < 4 * MIB


def test_a_docx_that_takes_too_long_is_refused():
    ticks = itertools.count(0.0, 20.0)
    with pytest.raises(DocumentError, match="within 15 s"):
        count(docx(paragraph("words")), "a.docx", clock=lambda: next(ticks))


def test_a_docx_that_declares_entities_is_refused():
    file = docx(paragraph("x"))
    hostile = f'<!DOCTYPE d [<!ENTITY a "{"a" * 100}">]><w:document {WORD}><w:t>&a;</w:t></w:document>'
    assert "damaged" in str(refusal(replaced(file, hostile)))


def replaced(file: bytes, document: str) -> bytes:
    """A DOCX with another document part."""
    import io

    content = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(file)), zipfile.ZipFile(content, "w") as archive:
        archive.writestr("word/document.xml", document)
    return content.getvalue()


def test_a_damaged_docx_says_so():
    content = docx(paragraph("words " * 1_000))
    assert "damaged" in str(refusal(content[: len(content) // 2]))
    assert "damaged" in str(refusal(replaced(content, "<w:document>")))


def test_another_zip_file_is_refused():
    import io

    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("readme.txt", "hello")
    assert "ZIP file of another kind" in str(refusal(content.getvalue()))


def test_nothing_of_a_file_but_counts_leaves():
    found = count(b"the salary of Jo is secret", "salaries-of-jo.txt").model_dump_json()
    assert "salar" not in found
    assert "secret" not in found


@given(st.binary(max_size=400), st.sampled_from([b"", b"%PDF-1.4\n", b"PK\x03\x04"]))
def test_whatever_comes_is_counted_or_refused(tail, head):
    try:
        found = count(head + tail, "x")
    except DocumentError:
        return
    assert found.tokens_low <= found.tokens_typical <= found.tokens_high


@settings(max_examples=40)
@given(st.data())
def test_a_file_with_flipped_bytes_is_counted_or_refused(data):
    whole = data.draw(st.sampled_from([pdf(2), docx(paragraph("some words"))]))
    content = bytearray(whole)
    for place in data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=8)):
        content[place] ^= 0xFF
    try:
        count(bytes(content), "x")
    except DocumentError:
        return
