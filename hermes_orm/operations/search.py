"""Search over messages, and the upkeep of its indexes."""

from __future__ import annotations

from hermes_orm.database import Database
from hermes_orm.facade import reads, runs
from hermes_orm.repositories.search.indexing import IndexingRepository
from hermes_orm.services import indexing, search


class SearchOperations:
    """What a store finds, and how it stays able to."""

    database: Database

    # Search
    search_messages = runs(search.search_messages)

    # Search indexes
    fts_rebuild_status = reads(IndexingRepository.fts_rebuild_status, scope="statement")
    fts_rebuild_step = runs(indexing.fts_rebuild_step, joins=False)
    fts_cjk_rebuild_status = reads(IndexingRepository.fts_cjk_rebuild_status, scope="statement")
    fts_cjk_rebuild_step = runs(indexing.fts_cjk_rebuild_step, joins=False)
    fts_optimize_available = runs(indexing.fts_optimize_available)
    optimize_fts = runs(indexing.optimize_fts, joins=False)
    rebuild_fts = runs(indexing.rebuild_fts, joins=False)
    optimize_fts_storage = runs(indexing.optimize_fts_storage, joins=False)
