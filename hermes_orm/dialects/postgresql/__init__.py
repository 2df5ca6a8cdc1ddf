"""PostgreSQL: many workers, many hosts."""
