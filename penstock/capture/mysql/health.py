"""How far a capture is behind, and whether the server still has what it needs."""

from __future__ import annotations

from penstock.capture.mysql.connection import Session
from penstock.capture.mysql.position import BinlogPosition, Place
from penstock.capture.mysql.read import check_place
from penstock.capture.mysql.settings import server_settings
from penstock.contracts import SourceHealth
from penstock.errors import ChangesLostError

_DAY = 86_400


def capture_health(session: Session, position: BinlogPosition | None, name: str) -> SourceHealth:
    """What the server says now. It keeps its log by age: no disk fills up because of a capture."""
    seconds = int(server_settings(session).get("binlog_expire_logs_seconds", "0"))
    state = (
        f"the server keeps its binary log for {seconds / _DAY:g} days" if seconds else "the server keeps its binary log"
    )
    if position is None or position.place is None:
        return SourceHealth(state)
    try:
        check_place(session, position.place, position.server_id, name)
    except ChangesLostError as error:
        return SourceHealth("lost", problem=error.message, hint=error.hint)
    behind = _bytes_behind(session, position.place)
    return SourceHealth(state, behind_bytes=behind, retained_bytes=behind)


def _bytes_behind(session: Session, place: Place) -> int:
    files = [Place(str(row[0]), int(str(row[1]))) for row in session.rows("SHOW BINARY LOGS")]
    later = sum(file.byte for file in files if file.number > place.number)
    return later + sum(max(0, file.byte - place.byte) for file in files if file.number == place.number)
