"""Whether a recovered file is sound, and holds what the source holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from hermes_orm.dialects.inspection import findings_of, status_of
from hermes_orm.location import SqliteLocation
from hermes_orm.models import SCHEMA_VERSION
from hermes_orm.models.own import ON_DEMAND_TABLES

COUNTED: Final = ("sessions", "messages", *sorted(ON_DEMAND_TABLES))
"""Tables of which no row may be missing."""

Report = dict[str, Any]


async def verify(output: Path, inspection: Report, copied: Report, *, partial: bool) -> Report:
    """Return what checks of the output say, against what was seen and read of the source."""
    location = SqliteLocation(output)
    problems: list[str] = []
    warnings: list[str] = []
    status = await status_of(location)
    findings = await findings_of(location, lambda step: None)
    problems += [f"{finding.area}: {finding.text}" for finding in findings]
    if status.version != SCHEMA_VERSION:
        problems.append(f"the schema version is {status.version}, not {SCHEMA_VERSION}")
    if status.to_be_indexed:
        problems.append(f"{status.to_be_indexed} messages are not indexed")
    losses = list(_losses(inspection, copied, status.rows))
    (warnings if partial else problems).extend(losses)
    areas = {finding.area for finding in findings}
    is_healthy = not areas
    return {
        "errors": problems,
        "warnings": warnings,
        "loss_detected": bool(losses),
        "opens_cleanly": True,
        "integrity_check": "failed" if "integrity" in areas else "ok",
        "foreign_key_check": "failed" if "references" in areas else "ok",
        "schema_version": status.version,
        "table_counts": dict(status.rows),
        "fts_checks": "failed" if "search" in areas or status.to_be_indexed else "ok",
        "healthy": is_healthy,
        "complete": not problems and not losses,
    }


def _losses(inspection: Report, copied: Report, rows: Any) -> list[str]:
    """Return what is known to be missing in the output."""
    found = []
    for table, copy in copied.items():
        if copy["status"] in ("partial", "failed"):
            found.append(f"{table}: {copy['status']}, {copy['rows']} rows were read")
    for table in COUNTED:
        there = inspection["tables"].get(table, {}).get("rows")
        if there is not None and there > rows.get(table, 0):
            found.append(f"{table}: {there} rows of the source, {rows.get(table, 0)} of the output")
    return found
