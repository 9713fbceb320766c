"""Topics for copied tables: what cannot be one is refused in words of the table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from penstock.capture.copy.topics import table_topic
from penstock.contracts import COMMIT_TIME, SourceTable
from penstock.errors import DeclarationError
from penstock.log import Log


def test_a_key_of_a_type_that_topics_cannot_have_as_a_key_is_refused_with_the_way_out(tmp_path: Path) -> None:
    schema = pa.schema(
        [pa.field("id", pa.decimal128(20, 0), nullable=False), pa.field(COMMIT_TIME, pa.timestamp("us", "UTC"))]
    )
    with Log(tmp_path / "log") as log, pytest.raises(DeclarationError, match="'id' is a decimal") as caught:
        table_topic(log, SourceTable("people", schema, ("id",)), "people")
    assert "--as-text people.id" in str(caught.value.hint)
