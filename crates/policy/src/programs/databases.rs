//! Databases, their frameworks, and backups.

use super::*;

pub(super) const PROGRAMS: &[ProgramSpec] = &[
    program(&["psql"])
        .key_options(&["-f"])
        .inert()
        .files(&[writes(Computed(client_output))])
        .runs(&[ESCAPES, Custom(client)])
        .asks(&[LOSES_ROWS]),
    program(&["mysql"])
        .inert()
        .files(&[writes(Computed(client_output))])
        .runs(&[ESCAPES, Custom(client)])
        .asks(&[LOSES_ROWS]),
    program(&["mariadb"]).runs(&[ESCAPES, Custom(client)]).asks(&[LOSES_ROWS]),
    program(&["sqlite3"])
        .valued(&["-cmd", "-separator", "-init", "-newline", "-nullvalue"])
        .inert()
        .files(&[
            writes(FirstOperand).when(Test(changes_file)),
            writes(Computed(client_output)),
            writes(Computed(written_by_sql)),
        ])
        .runs(&[ESCAPES, Custom(client), Custom(sqlite)])
        .asks(&[LOSES_ROWS]),
    program(&[
        "sqlcmd", "cockroach", "clickhouse-client", "clickhouse", "mongosh", "mongo", "duckdb", "pgcli",
        "mycli", "litecli", "usql", "osql", "isql", "snowsql", "bq", "cqlsh", "influx", "sqlplus", "trino",
        "hive", "beeline", "spark-sql", "turso",
    ])
    .asks(&[LOSES_ROWS]),
    program(&["dropdb", "dropuser", "memcflush", "pg_dropcluster"]).asks(&[always(LOSS).unless(Help)]),
    program(&["pg_resetwal"]).asks(&[always(LOSS)]),
    program(&["pg_ctl"]).asks(&[Arg(&["stop", "restart", "promote"]).triggers(LOSS)]),
    program(&["redis-cli", "valkey-cli"]).asks(&[Test(empties_redis).triggers(LOSS)]),
    program(&["pg_dump", "pg_dumpall", "mysqldump", "mariadb-dump"])
        .files(&[writes(Values(&["-f", "--file", "-r", "--result-file"]))]),
    program(&["mysqladmin"]).asks(&[Arg(&["drop", "shutdown", "kill", "password"]).triggers(LOSS)]),
    program(&["etcdctl"]).asks(&[Arg(&["del", "rm", "rmdir"]).triggers(LOSS)]),
    program(&["rabbitmqctl"]).asks(&[Arg(&[
        "reset", "force_reset", "stop", "delete_queue", "purge_queue", "delete_user", "delete_vhost",
        "stop_app",
    ])
    .triggers(LOSS)]),
    program(&["kafka-topics", "kafka-topics.sh"]).asks(&[Arg(&["--delete"]).triggers(LOSS)]),
    program(&["mongorestore", "pg_restore"]).asks(&[Arg(&["--drop", "--clean", "-c"]).triggers(LOSS)]),
    program(&["alembic"]).asks(&[Arg(&["downgrade"]).triggers(LOSS)]),
    program(&["rails", "rake"]).asks(&[Arg(&[
        "db:drop", "db:reset", "db:schema:load", "db:purge", "db:migrate:reset", "db:truncate_all",
        "db:setup",
    ])
    .triggers(LOSS)]),
    program(&["prisma"])
        .asks(&[Arg(&["reset", "--force-reset", "--accept-data-loss"]).triggers(LOSS), RESETS_SCHEMA]),
    program(&["nats", "consul"]).asks(&[DELETES_KEYS]),
    program(&["flyway"]).asks(&[Verb(&["clean"]).triggers(RESET), RESETS_SCHEMA]),
    program(&["dbmate", "migrate"]).asks(&[Verb(&["drop"]).triggers(RESET), RESETS_SCHEMA]),
    program(&["django-admin"]).asks(&[Verb(&["flush"]).triggers(RESET), RESETS_SCHEMA]),
    program(&[
        "sequelize", "sequelize-cli", "knex", "liquibase", "typeorm", "drizzle-kit", "artisan", "sail", "wp",
        "drush", "hasura", "goose", "sqlx", "diesel",
    ])
    .asks(&[RESETS_SCHEMA]),
    program(&["borg"]).runs(&[Text(&["--rsh"])]).asks(&[LOSES_BACKUPS]),
    program(&[
        "tmutil", "restic", "timeshift", "snapper", "duplicity", "rsnapshot", "rdiff-backup", "zrepl",
        "kopia",
    ])
    .asks(&[LOSES_BACKUPS]),
];

const LOSS: &str = "database-loss";
const RESET: &str = "schema-reset";

/// The commands with which database clients start a program.
const ESCAPES: Runs = Escapes(&["\\!", ".shell ", ".system ", "system ", "!"]);

/// Pipes to programs, libraries and program texts in the commands of a client.
fn client(call: &Invocation<'_>, found: &mut Vec<Nested>) {
    let input = call.segment.stdin.text.as_ref().map(Word::outline);
    for text in call.args.iter().map(Word::outline).chain(input) {
        let lower = text.to_ascii_lowercase();
        for mark in [
            "\\g |", "\\g|", "\\o |", "\\o|", "\\w |", ".once |", ".output |", "pager ", "\\p ", "program '",
            "'|",
        ] {
            let at = lower.find(mark).map(|at| at + mark.len());
            let command =
                at.and_then(|at| text.get(at..)).map(|rest| rest.trim_end_matches(['\'', ';', '\n']));
            found.extend(command.map(|command| Nested::text(Word::literal(command))));
        }
        if [".load ", "load_extension(", "sys_exec(", "sys_eval(", "lo_export("]
            .iter()
            .any(|name| lower.contains(name))
        {
            found.push(Nested::Code(Language::Other, Word::literal(text)));
        }
    }
}

/// Functions of SQLite's client that start an editor, commands it reads from a pipe, and files of
/// commands. Plain SQL of the project is its business.
fn sqlite(call: &Invocation<'_>, found: &mut Vec<Nested>) {
    let segment = call.segment;
    let mut files = call.values(&["-init", "--init"]);
    for text in texts(call) {
        if text.to_ascii_lowercase().replace(' ', "").contains("edit(") {
            found.push(Nested::Code(Language::Other, Word::literal(&text)));
        }
        for line in text.lines().map(str::trim_start).filter(|line| line.starts_with('.')) {
            let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let rest = rest.trim().trim_matches(['"', '\'']);
            if let Some((_, command)) = rest.split_once('|') {
                found.push(Nested::text(Word::literal(command.split(['"', '\'']).next().unwrap_or(command))));
            } else if ".read".starts_with(name) && name.len() > 2 {
                files.push(Word::literal(rest));
            }
        }
    }
    found.extend(files.iter().map(|file| Nested::File(Language::Other, file.clone())));
    files.extend(segment.stdin.file.clone().filter(|_| segment.stdin.text.is_none()));
    let here = segment.cwd.as_deref().unwrap_or_default();
    let is_unread = |file: &Word| {
        let path = segment.path(file);
        !(path.ends_with(".sql") && crate::paths::is_below(&path, here))
    };
    if files.iter().any(is_unread) {
        found.push(Nested::Code(Language::Other, Word::unknown(Unknown::Variable("sql".to_owned()))));
    }
}

/// The words and the input of a client.
fn texts(call: &Invocation<'_>) -> Vec<String> {
    call.args.iter().chain(&call.segment.stdin.text).map(Word::outline).collect()
}

/// The files that SQL writes: `writefile('x', …)`, `VACUUM INTO 'x'`, `ATTACH 'x'`.
fn written_by_sql(call: &Invocation<'_>) -> Vec<Word> {
    let mut found = Vec::new();
    for text in texts(call) {
        let lower = text.to_ascii_lowercase();
        for (mark, needs_literal) in [("writefile", false), ("into '", true), ("attach ", true)] {
            for (at, _) in lower.match_indices(mark) {
                let rest =
                    text.get(at + mark.len() - usize::from(mark.ends_with('\''))..).unwrap_or_default();
                let argument = rest.trim_start_matches(|char: char| char.is_whitespace() || char == '(');
                let argument = match argument.get(..8) {
                    Some(word) if word.eq_ignore_ascii_case("database") => {
                        argument.get(8..).unwrap_or_default().trim_start()
                    }
                    _ => argument,
                };
                let literal =
                    argument.strip_prefix(['\'', '"']).and_then(|rest| rest.split(['\'', '"']).next());
                match literal {
                    Some(path) => found.push(Word::literal(path)),
                    None if needs_literal => {}
                    None => found.push(Word::unknown(Unknown::Variable("path".to_owned()))),
                }
            }
        }
    }
    found
}

pub(super) const LOSES_ROWS: Ask = Test(runs_losing_statement).triggers("sql");

pub(super) const RESETS_SCHEMA: Ask = Test(resets_schema).triggers(RESET);

pub(super) const DELETES_KEYS: Ask = Arg(&["delete", "rm", "purge", "destroy"]).triggers(LOSS);

const LOSES_BACKUPS: Ask = Any(&[
    Operand(&[
        "forget", "prune", "delete", "remove", "restore", "rollback", "wipe", "undochange",
        "deletelocalsnapshots", "disable",
    ]),
    Flag(&["--delete", "--restore", "--prune"]),
])
.triggers("backups");

fn runs_losing_statement(call: &Invocation<'_>) -> bool {
    let value = |word: &Word| match word.after('=') {
        Some(value) if word.prefix().starts_with("--") => value.outline(),
        _ => word.outline(),
    };
    let input = call.segment.stdin.text.as_ref().map(Word::outline);
    call.args.iter().map(value).chain(input).any(|text| text.to_lowercase().split(';').any(loses_rows))
}

/// Things that `DROP` deletes.
const DROPPED: &[&str] = &[
    "table", "database", "schema", "view", "index", "user", "role", "column", "keyspace", "collection",
    "materialized", "type", "function", "sequence", "owned", "extension", "tablespace",
];

/// Whether a statement in lower case loses data.
fn loses_rows(statement: &str) -> bool {
    let unquoted: String;
    let mut statement = statement;
    if ["select", "insert", "explain"].iter().any(|verb| statement.trim_start().starts_with(verb)) {
        unquoted = statement.split('\'').step_by(2).collect();
        statement = &unquoted;
    }
    let words: Vec<&str> = statement
        .split(|char: char| !char.is_alphanumeric() && char != '_' && char != '=')
        .filter(|word| !word.is_empty())
        .collect();
    let first = words.first().copied().unwrap_or_default();
    let follows = |first: &str, second: &[&str]| {
        words.windows(2).any(|pair| matches!(pair, [a, b] if *a == first && second.contains(b)))
    };
    let filter = words
        .iter()
        .position(|word| *word == "where")
        .map(|at| words.get(at + 1..).unwrap_or_default().concat());
    let everything = filter.is_none_or(|filter| matches!(filter.as_str(), "1=1" | "true" | "1" | "0=0"));
    let deletes = follows("delete", &["from"]) || (first == "delete" && words.len() > 1);
    let updates = first == "update" && words.contains(&"set");
    let calls = ["dropdatabase", ".drop(", "deletemany({})", "remove({})", "pg_terminate_backend"];
    matches!(first, "truncate" | "shutdown")
        || follows("drop", DROPPED)
        || follows("truncate", &["table"])
        || (everything && (deletes || updates))
        || calls.iter().any(|call| statement.contains(call))
}

const REDIS_CHANGES: &[&str] = &[
    "flushall", "flushdb", "shutdown", "config", "debug", "slaveof", "replicaof", "script", "eval", "module",
    "swapdb", "unlink", "del",
];

fn empties_redis(call: &Invocation<'_>) -> bool {
    let input = call.segment.stdin.text.as_ref().map(|text| text.outline().to_lowercase());
    let input = input.unwrap_or_default();
    let changes = Arg(REDIS_CHANGES);
    let reads_settings = Arg(&["config"]).holds(call) && Arg(&["get"]).holds(call);
    (changes.holds(call) && !reads_settings)
        || input.split_whitespace().next().is_some_and(|verb| REDIS_CHANGES.contains(&verb))
        || input.contains("flush")
        || call.segment.via.iter().any(|via| via == "xargs")
}

/// Tasks of frameworks that start over with an empty database, in one or two words.
const RESETS: &[&str] = &[
    "migrate:fresh", "migrate:reset", "migrate:refresh", "db:wipe", "db:drop", "db:drop:all", "db:reset",
    "ecto.drop", "ecto.reset", "drop-all", "dropAll", "schema:drop", "reset_db", "sqlflush",
    "db:migrate:undo:all", "migrate:rollback", "database drop", "database reset", "db drop", "db reset",
    "manage.py flush", "./manage.py flush", "migrate reset",
];

fn resets_schema(call: &Invocation<'_>) -> bool {
    let words: Vec<&str> = call.args.iter().map(Word::prefix).collect();
    let line = format!(" {} ", words.join(" "));
    RESETS.iter().any(|task| line.contains(&format!(" {task} ")))
}

fn changes_file(call: &Invocation<'_>) -> bool {
    let changes = ["update", "insert", "delete", "drop", "create", "alter", "replace", "vacuum"];
    call.args.iter().skip(1).chain(&call.segment.stdin.text).any(|word| {
        let text = word.outline().to_ascii_lowercase();
        changes.iter().any(|change| text.contains(change))
    })
}

fn client_output(call: &Invocation<'_>) -> Vec<Word> {
    let lines: Vec<String> =
        texts(call).iter().flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    let options = call.values(&["-o", "--output", "-L", "--log-file"]);
    let named = options.into_iter().filter(|_| call.name() == "psql");
    let targets = lines.into_iter().filter_map(|text| {
        let mut words = text.split_whitespace();
        let writes = [
            ".output", ".once", ".backup", ".save", ".log", ".trace", ".clone", ".open", ".cd", "\\o", "\\w",
            "\\s", "\\copy", "tee", "\\t",
        ];
        let writes = words.next().is_some_and(|command| writes.contains(&command));
        words.last().filter(|_| writes).map(|path| Word::literal(path.trim_matches(['\'', '"'])))
    });
    targets.chain(named).collect()
}
