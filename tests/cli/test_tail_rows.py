"""The rows that `tail` shows, as lines of text."""

from __future__ import annotations

from penstock.cli.tail_rows import ShownRow, json_line, text_line

ROW = ShownRow(3, 17, 0, False, None, {"id": 1, "name": None, "note": "a b"})
DELETE = ShownRow(3, 18, 0, True, 2, {"id": 1, "name": None})


def test_a_row_is_one_line_for_people() -> None:
    assert text_line(ROW) == '3:17  1970-01-01T00:00:00Z  id=1 name=null note="a b"'
    assert text_line(DELETE) == "3:18  1970-01-01T00:00:00Z  deleted id=1"


def test_a_row_is_one_line_of_json() -> None:
    assert json_line(ROW) == (
        '{"partition":3,"offset":17,"appended_at":"1970-01-01T00:00:00Z","deleted":false,'
        '"row":{"id":1,"name":null,"note":"a b"}}'
    )
    assert '"deleted":true,"version":2,' in json_line(DELETE)
