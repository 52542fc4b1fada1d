//! Losing what is kept in databases and backups.

use super::{On, Rule, View};
use crate::shell::Word;

pub(super) const RULES: &[Rule] = &[
    Rule::ask(
        "sql",
        "drops or empties database tables",
        On::Programs(&[
            "psql", "mysql", "mariadb", "sqlite3", "sqlcmd", "cockroach", "clickhouse-client", "clickhouse",
            "mongosh", "mongo", "duckdb", "pgcli", "mycli", "litecli", "usql", "osql", "isql", "snowsql",
            "bq", "cqlsh", "influx", "sqlplus", "trino", "hive", "beeline", "spark-sql", "wrangler", "turso",
            "supabase",
        ]),
        sql,
    )
    .inside()
    .examples(
        &[
            "psql -c 'DROP TABLE x'", "psql -c 'delete from users'", "psql -c 'delete from users where 1=1'",
            "echo 'TRUNCATE x' | mysql", "psql -c 'DROP SCHEMA public CASCADE'",
        ],
        &["psql -c 'select 1'", "psql -c \"delete from users where id = 3\"", "grep 'DROP TABLE' x.sql"],
    ),
    Rule::ask(
        "database-loss",
        "deletes a database or its content",
        On::Programs(&[
            "pg_ctl", "pg_resetwal", "dropdb", "dropuser", "redis-cli", "valkey-cli", "mysqladmin",
            "etcdctl", "rabbitmqctl", "kafka-topics", "kafka-topics.sh", "mongorestore", "pg_restore",
            "alembic", "rails", "rake", "prisma", "influxd", "memcflush", "pg_dropcluster", "nats", "consul",
            "vault",
        ]),
        database_loss,
    )
    .inside()
    .examples(
        &["redis-cli FLUSHALL", "redis-cli -n 0 flushdb", "dropdb production", "mysqladmin drop x"],
        &["redis-cli keys '*'", "createdb x", "redis-cli get a"],
    ),
    Rule::ask(
        "schema-reset",
        "drops or empties a database through a framework",
        On::Programs(FRAMEWORKS),
        resets_schema,
    )
    .examples(
        &[
            "php artisan migrate:fresh", "python manage.py flush --no-input", "mix ecto.drop",
            "dotnet ef database drop -f", "flyway clean",
        ],
        &["php artisan migrate", "python manage.py migrate", "mix test", "make clean"],
    ),
    Rule::ask(
        "backups",
        "deletes snapshots or backups",
        On::Programs(&[
            "tmutil", "restic", "borg", "timeshift", "snapper", "duplicity", "rsnapshot", "rdiff-backup",
            "zrepl", "kopia",
        ]),
        |view| {
            view.words().iter().any(|word| {
                matches!(
                    *word,
                    "forget"
                        | "prune"
                        | "delete"
                        | "remove"
                        | "restore"
                        | "rollback"
                        | "wipe"
                        | "undochange"
                        | "deletelocalsnapshots"
                        | "disable"
                )
            }) || view.has(&["--delete", "--restore", "--prune"])
        },
    )
    .examples(
        &["restic forget --prune", "borg delete r", "tmutil deletelocalsnapshots /"],
        &["restic snapshots", "borg list r"],
    ),
];

/// Whether a text holds a statement that loses data.
fn loses_rows(text: &str) -> bool {
    let text = text.to_lowercase();
    text.split(';').any(|statement| {
        let unquoted: String;
        let statement =
            if ["select", "insert", "explain"].iter().any(|verb| statement.trim_start().starts_with(verb)) {
                unquoted = statement.split('\'').step_by(2).collect();
                unquoted.as_str()
            } else {
                statement
            };
        let words: Vec<&str> = statement
            .split(|char: char| !char.is_alphanumeric() && char != '_' && char != '=')
            .filter(|word| !word.is_empty())
            .collect();
        let follows = |first: &str, second: &[&str]| {
            words.windows(2).any(|pair| matches!(pair, [a, b] if *a == first && second.contains(b)))
        };
        let drops = follows(
            "drop",
            &[
                "table", "database", "schema", "view", "index", "user", "role", "column", "keyspace",
                "collection", "materialized", "type", "function", "sequence", "owned", "extension",
                "tablespace",
            ],
        );
        let truncates = words.first() == Some(&"truncate") || follows("truncate", &["table"]);
        let deletes = follows("delete", &["from"]) || (words.first() == Some(&"delete") && words.len() > 1);
        let filter = words
            .iter()
            .position(|word| *word == "where")
            .map(|at| words.get(at + 1..).unwrap_or_default().join(" "));
        let everything = filter
            .as_deref()
            .is_none_or(|filter| matches!(filter.replace(' ', "").as_str(), "1=1" | "true" | "1" | "0=0"));
        let updates = words.first() == Some(&"update") && words.contains(&"set") && everything;
        let mongo = statement.contains("dropdatabase")
            || statement.contains(".drop(")
            || statement.contains("deletemany({})")
            || statement.contains("remove({})");
        drops
            || truncates
            || (deletes && everything)
            || updates
            || mongo
            || words.first() == Some(&"shutdown")
            || statement.contains("pg_terminate_backend")
    })
}

fn sql(view: &View<'_>) -> bool {
    let value = |word: &Word| match word.after('=') {
        Some(value) if word.prefix().starts_with("--") => value.outline(),
        _ => word.outline(),
    };
    let mut texts = view.args().iter().map(value).chain(view.segment.stdin.text.as_ref().map(Word::outline));
    texts.any(|text| loses_rows(&text))
}

fn database_loss(view: &View<'_>) -> bool {
    let words: Vec<String> = view.args().iter().map(|word| word.prefix().to_lowercase()).collect();
    let says = |verbs: &[&str]| words.iter().any(|word| verbs.contains(&word.as_str()));
    match view.name() {
        "dropdb" | "dropuser" | "memcflush" | "pg_dropcluster" => !view.asks_for_help(),
        "redis-cli" | "valkey-cli" => {
            let input = view
                .segment
                .stdin
                .text
                .as_ref()
                .map(|text| text.outline().to_lowercase())
                .unwrap_or_default();
            let verbs = [
                "flushall", "flushdb", "shutdown", "config", "debug", "slaveof", "replicaof", "script",
                "eval", "module", "swapdb", "unlink", "del",
            ];
            let read_only = says(&["config"]) && says(&["get"]);
            (says(&verbs) && !read_only)
                || input.contains("flush")
                || input.contains("shutdown")
                || view.via("xargs")
        }
        "mysqladmin" => says(&["drop", "shutdown", "kill", "password"]),
        "etcdctl" => says(&["del", "rm", "rmdir"]),
        "rabbitmqctl" => says(&[
            "reset", "force_reset", "stop", "delete_queue", "purge_queue", "delete_user", "delete_vhost",
            "stop_app",
        ]),
        "kafka-topics" | "kafka-topics.sh" => says(&["--delete"]),
        "mongorestore" | "pg_restore" => says(&["--drop", "--clean", "-c"]),
        "alembic" => says(&["downgrade"]),
        "rails" | "rake" => words.iter().any(|word| {
            matches!(
                word.as_str(),
                "db:drop"
                    | "db:reset"
                    | "db:schema:load"
                    | "db:purge"
                    | "db:migrate:reset"
                    | "db:truncate_all"
                    | "db:setup"
            )
        }),
        "prisma" => says(&["reset"]) || says(&["--force-reset", "--accept-data-loss"]),
        "pg_ctl" => says(&["stop", "restart", "promote"]),
        "pg_resetwal" => true,
        "nats" | "consul" | "vault" => says(&["delete", "rm", "purge", "destroy"]),
        _ => false,
    }
}

const FRAMEWORKS: &[&str] = &[
    "php", "python", "python3", "sequelize", "sequelize-cli", "knex", "mix", "dotnet", "flyway", "liquibase",
    "typeorm", "drizzle-kit", "artisan", "sail", "npm", "yarn", "pnpm", "bun", "just", "make", "prisma",
    "django-admin", "wp", "drush", "hasura", "dbmate", "goose", "migrate", "sqlx", "diesel",
];

/// Tasks of frameworks that start over with an empty database.
const RESETS: &[&str] = &[
    "migrate:fresh", "migrate:reset", "migrate:refresh", "db:wipe", "db:drop", "db:drop:all", "db:reset",
    "ecto.drop", "ecto.reset", "drop-all", "dropAll", "schema:drop", "reset_db", "sqlflush",
    "db:migrate:undo:all", "migrate:rollback",
];

fn resets_schema(view: &View<'_>) -> bool {
    let words: Vec<&str> = view.args().iter().map(Word::prefix).collect();
    let pairs = [
        ("database", "drop"),
        ("database", "reset"),
        ("db", "drop"),
        ("db", "reset"),
        ("manage.py", "flush"),
        ("./manage.py", "flush"),
        ("migrate", "reset"),
    ];
    words.iter().any(|word| RESETS.contains(word))
        || words.windows(2).any(|pair| matches!(pair, [a, b] if pairs.contains(&(a, b))))
        || matches!(
            (view.name(), words.first().copied()),
            ("flyway", Some("clean"))
                | ("dbmate" | "migrate", Some("drop"))
                | ("django-admin", Some("flush"))
        )
}
