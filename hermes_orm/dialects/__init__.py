"""The only place that knows SQLite from PostgreSQL."""
from hermes_orm.dialects.prepared import Prepared
