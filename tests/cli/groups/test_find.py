"""Finding a group by its name."""

from __future__ import annotations

import pytest

from penstock import Log
from penstock.cli.groups.find import find_group
from penstock.errors import DeclarationError


def test_a_group_is_known_once_somebody_has_read_under_its_name(log: Log) -> None:
    log.create_topic("t", "a int")
    with pytest.raises(DeclarationError, match="group 'readers': it does not exist"):
        find_group(log, "readers")
    log.group("readers").commit("t", {0: 0})
    assert find_group(log, "readers").name == "readers"
    with pytest.raises(DeclarationError) as refused:
        find_group(log, "zebra")
    assert refused.value.hint == "the groups are: readers"
