"""Everything a database says about its schema, for comparison with another database."""

from typing import Any

from tests.raw import Raw

# Columns by name: a table that grew has them in another order than a new one.
SQLITE = {
    "objects": """
        SELECT type, name, tbl_name, CASE WHEN type <> 'table' OR sql LIKE '%VIRTUAL%' THEN sql END,
               sql LIKE '%AUTOINCREMENT%', sql LIKE '%WITHOUT ROWID%'
        FROM sqlite_schema ORDER BY name
    """,
    "columns": """
        SELECT t.name, c.name, c.type, c."notnull", c.dflt_value, c.pk, c.hidden
        FROM sqlite_schema AS t JOIN pragma_table_xinfo(t.name) AS c
        WHERE t.type = 'table' ORDER BY 1, 2
    """,
    "foreign keys": """
        SELECT t.name, k."table", k."from", k."to", k.on_update, k.on_delete
        FROM sqlite_schema AS t JOIN pragma_foreign_key_list(t.name) AS k
        WHERE t.type = 'table' ORDER BY 1, 2, 3
    """,
    "index columns": """
        SELECT i.name, x.seqno, x.name, x."desc", x.coll, x.key
        FROM sqlite_schema AS i JOIN pragma_index_xinfo(i.name) AS x
        WHERE i.type = 'index' ORDER BY 1, 2
    """,
}

POSTGRES = {
    "columns": """
        SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
               a.attidentity, k.collname, pg_get_expr(d.adbin, d.adrelid)
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        LEFT JOIN pg_collation k ON k.oid = a.attcollation
        LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE c.relnamespace = current_schema()::regnamespace AND a.attnum > 0 AND c.relkind = 'r'
        AND NOT a.attisdropped
        ORDER BY 1, 2
    """,
    "constraints": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = current_schema()::regnamespace ORDER BY 1, 2
    """,
    "indexes": "SELECT indexdef FROM pg_indexes WHERE schemaname = current_schema() ORDER BY 1",
    "triggers": "SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal ORDER BY 1",
    "functions": """
        SELECT p.proname, pg_get_functiondef(p.oid) FROM pg_proc p
        LEFT JOIN pg_depend e ON e.objid = p.oid AND e.deptype = 'e'
        WHERE p.pronamespace = current_schema()::regnamespace AND e.objid IS NULL ORDER BY 1
    """,
    "extensions": "SELECT extname FROM pg_extension ORDER BY 1",
}

STAMPS = {
    "revision": "SELECT version_num FROM hermes_alembic_version",
    "version": "SELECT version FROM schema_version",
    "settings": "SELECT key FROM state_meta ORDER BY key",
}


async def catalogue(location: str) -> dict[str, list[tuple[Any, ...]]]:
    """Return definitions of all objects (white space aside) and the names of all settings."""
    raw = Raw(location)
    queries = {**(POSTGRES if raw.is_postgres else SQLITE), **STAMPS}
    found = {name: await raw.fetch(query) for name, query in queries.items()}
    return {name: [tuple(map(normal, row)) for row in rows] for name, rows in found.items()}


def differences(
    found: dict[str, list[tuple[Any, ...]]], expected: dict[str, list[tuple[Any, ...]]]
) -> list[str]:
    """Return a line for each definition that only one of two databases has."""
    return [
        f"{sign} {name}: {row}"
        for name in expected
        for sign, rows, others in (("-", expected, found), ("+", found, expected))
        for row in rows[name]
        if row not in others[name]
    ]


def normal(value: Any) -> Any:
    """Return a definition without its line breaks and the order of its constraints."""
    if not isinstance(value, str):
        return value
    return sorted(" ".join(value.split()).removesuffix(" )").split(", CONSTRAINT "))
