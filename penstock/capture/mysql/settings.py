"""What the server must be set to, and the statement for what is set otherwise."""

from __future__ import annotations

from penstock.capture.mysql.connection import Session
from penstock.errors import DeclarationError

_NEEDED = {"binlog_format": "ROW", "binlog_row_image": "FULL", "binlog_row_metadata": "FULL"}


def check_settings(session: Session) -> None:
    """Raise DeclarationError unless the server writes a binary log that can be captured."""
    where = f"database {session.address.shown}"
    found = server_settings(session)
    if "mariadb" not in found["version"].lower() or "binlog_row_metadata" not in found:
        raise DeclarationError(
            f"{where}: only MariaDB 10.5 and newer can be captured; found version {found['version']}",
            hint="MySQL does not say at which place of its binary log a snapshot is, so a copy could not be exact",
        )
    if found["log_bin"] != "ON":
        raise DeclarationError(
            f"{where}: the server writes no binary log; found log_bin = {found['log_bin']}",
            hint="add to the section [mariadbd] of my.cnf and restart the server: "
            "log_bin = mariadb-bin, binlog_format = ROW, binlog_row_metadata = FULL, server_id = 1",
        )
    for name, value in _NEEDED.items():
        if found[name] != value:
            raise DeclarationError(
                f"{where}: the binary log does not have what capturing needs; found {name} = {found[name]}",
                hint=f"SET GLOBAL {name} = {value}; and {name} = {value} in the section [mariadbd] of my.cnf. "
                "Sessions that are open keep the earlier value: let the applications connect again",
            )


def server_settings(session: Session) -> dict[str, str]:
    names = ("version", "log_bin", "server_id", "binlog_expire_logs_seconds", "binlog_checksum", *_NEEDED)
    rows = session.rows(
        "SHOW GLOBAL VARIABLES WHERE Variable_name IN (" + ", ".join(f"'{name}'" for name in names) + ")"
    )
    return {str(name): str(value) for name, value in rows}
