"""Export and import of sessions."""

from __future__ import annotations

from hermes_orm.database import Database
from hermes_orm.facade import runs, streams
from hermes_orm.services import exports, imports


class PortabilityOperations:
    """How sessions leave a store and come in."""

    database: Database

    export_session = runs(exports.export_session)
    export_session_lineage = runs(exports.export_session_lineage)
    export_all = runs(exports.export_all)
    iter_export = streams(exports.iter_export)
    import_sessions = runs(imports.import_sessions, modifies=True)
