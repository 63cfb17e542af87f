"""What a control plane's database is known by, so that a copy of it is not taken for it (SPEC T3)."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Engine

from checkpoints_db.address import Address


def identity(address: Address, engine: Callable[[], Engine]) -> str:
    """A file's path; of PostgreSQL the cluster's own number, which a dump that is restored elsewhere does not have, database and schema.

    Who may not ask for that number takes those of our tables: they are the same by whichever address, and others in a restored dump.
    """
    if not address.postgres:
        return "sqlite in memory" if address.path is None else f"sqlite:{address.path.resolve()}"
    with engine().connect() as connection:
        database, schema = connection.exec_driver_sql(
            "SELECT (SELECT oid FROM pg_database WHERE datname = current_database()), current_schema()"
        ).one()
        if connection.exec_driver_sql("SELECT has_function_privilege('pg_control_system()', 'EXECUTE')").scalar():
            system = connection.exec_driver_sql("SELECT system_identifier FROM pg_control_system()").scalar()
        else:
            system = connection.exec_driver_sql(
                "SELECT string_agg(oid::text, '.' ORDER BY relname) FROM pg_class WHERE relkind = 'r' "
                "AND relnamespace = current_schema()::regnamespace AND relname IN ('checkpoint', 'member', 'region')"
            ).scalar()
    return f"postgresql:{system}/{database}/{schema}"
