//! Losing the content of databases and backups.

use super::{Rule, Trigger};

pub(super) const RULES: &[Rule] = &[
    Rule::ask("sql", "drops or empties database tables", Trigger::Programs).inside().examples(
        &[
            "psql -c 'DROP TABLE x'", "psql -c 'delete from users'", "psql -c 'delete from users where 1=1'",
            "echo 'TRUNCATE x' | mysql", "psql -c 'DROP SCHEMA public CASCADE'",
        ],
        &["psql -c 'select 1'", "psql -c \"delete from users where id = 3\"", "grep 'DROP TABLE' x.sql"],
    ),
    Rule::ask("database-loss", "deletes a database or its content", Trigger::Programs).inside().examples(
        &["redis-cli FLUSHALL", "redis-cli -n 0 flushdb", "dropdb production", "mysqladmin drop x"],
        &["redis-cli keys '*'", "createdb x", "redis-cli get a"],
    ),
    Rule::ask("schema-reset", "drops or empties a database through a framework", Trigger::Programs).examples(
        &[
            "php artisan migrate:fresh", "python manage.py flush --no-input", "mix ecto.drop",
            "dotnet ef database drop -f", "flyway clean",
        ],
        &["php artisan migrate", "python manage.py migrate", "mix test", "make clean"],
    ),
    Rule::ask("backups", "deletes snapshots or backups", Trigger::Programs).examples(
        &["restic forget --prune", "borg delete r", "tmutil deletelocalsnapshots /"],
        &["restic snapshots", "borg list r"],
    ),
];
