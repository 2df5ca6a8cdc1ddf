"""Physical facts of a SQLite file, as other programs that read it depend on them."""

from typing import Any

Facts = dict[str, Any]


def schema_facts(driver: Any) -> Facts:
    """Return columns, keys and indexes of each table, and the names of all other objects.

    A column is its type, default and place in the key; an index is its columns, each with its
    direction and collation. Texts of definitions are left out: they may differ.
    """
    rows = driver.execute("SELECT type, name, sql FROM sqlite_schema").fetchall()
    named = {kind: sorted(name for its, name, _ in rows if its == kind) for kind, _, _ in rows}
    virtual = [name for _, name, sql in rows if (sql or "").startswith("CREATE VIRTUAL")]
    plain = [
        name
        for name in named["table"]
        if not name.startswith(("sqlite_", *virtual)) or name == "sqlite_sequence"
    ]
    return {
        "full-text tables": sorted(virtual),
        "views": named["view"],
        "triggers": named["trigger"],
        "tables": {name: _table_facts(driver, name) for name in plain},
    }


def _table_facts(driver: Any, table: str) -> Facts:
    columns = driver.execute(f"PRAGMA table_xinfo({table})").fetchall()
    keys = driver.execute(f"PRAGMA foreign_key_list({table})").fetchall()
    return {
        "columns": {
            name: [kind, "NOT NULL" if required else "", default, key]
            for _, name, kind, required, default, key, _ in columns
        },
        "foreign keys": sorted(list(key[2:]) for key in keys),
        "indexes": {
            name: ["unique" if unique else "", "partial" if partial else ""]
            + [list(row[2:5]) for row in driver.execute(f"PRAGMA index_xinfo({name})") if row[5]]
            for _, name, unique, _, partial in driver.execute(f"PRAGMA index_list({table})")
        },
    }
