//! What a statement may do: an allow list, looked through while SQLite prepares it. What is not on it could differ from replica to
//! replica, leave the database, or undo what keeps replicas the same.

use rusqlite::hooks::{AuthAction, AuthContext, TransactionOperation};

/// Tables of SQLite's own that may be read.
const READ: &[&str] = &["sqlite_master", "sqlite_schema", "sqlite_sequence"];
/// Tables that look into the program or its memory, and are not in the database.
const NO_TABLES: &[&str] = &["bytecode", "dbstat", "fts3tokenize", "fts5vocab", "tables_used"];

/// Functions that give the same everywhere, or are fed from the entry (`given.rs`).
const FUNCTIONS: &[&str] = &[
    "->",
    "->>",
    "abs",
    "avg",
    "changes",
    "char",
    "coalesce",
    "concat",
    "concat_ws",
    "count",
    "cume_dist",
    "current_date",
    "current_time",
    "current_timestamp",
    "date",
    "datetime",
    "dense_rank",
    "first_value",
    "format",
    "glob",
    "group_concat",
    "hex",
    "if",
    "ifnull",
    "iif",
    "instr",
    "json",
    "json_array",
    "json_array_insert",
    "json_array_length",
    "json_each",
    "json_error_position",
    "json_extract",
    "json_group_array",
    "json_group_object",
    "json_insert",
    "json_object",
    "json_patch",
    "json_pretty",
    "json_quote",
    "json_remove",
    "json_replace",
    "json_set",
    "json_tree",
    "json_type",
    "json_valid",
    "jsonb",
    "jsonb_array",
    "jsonb_array_insert",
    "jsonb_extract",
    "jsonb_group_array",
    "jsonb_group_object",
    "jsonb_insert",
    "jsonb_object",
    "jsonb_patch",
    "jsonb_remove",
    "jsonb_replace",
    "jsonb_set",
    "julianday",
    "lag",
    "last_insert_rowid",
    "last_value",
    "lead",
    "length",
    "like",
    "likelihood",
    "likely",
    "lower",
    "ltrim",
    "max",
    "min",
    "nth_value",
    "ntile",
    "nullif",
    "octet_length",
    "percent_rank",
    "printf",
    "quote",
    "random",
    "randomblob",
    "rank",
    "replace",
    "round",
    "row_number",
    "rtrim",
    "sign",
    "soundex",
    "strftime",
    "string_agg",
    "subtype",
    "substr",
    "substring",
    "sum",
    "time",
    "timediff",
    "total",
    "trim",
    "typeof",
    "unhex",
    "unicode",
    "unistr",
    "unistr_quote",
    "unixepoch",
    "unlikely",
    "upper",
    "zeroblob",
];

/// What it is to a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allowed {
    /// It changes nothing, or rows.
    Rows,
    /// It changes tables, indexes, views or triggers.
    Schema,
}

/// Whether it may be.
///
/// # Errors
/// Why not, and what to do instead.
pub fn judge(context: &AuthContext<'_>) -> Result<Allowed, String> {
    // What SQLite does to its own tables to change the schema comes as writes of `sqlite_master`: it refuses others itself.
    if context.database_name.is_some_and(|name| name.eq_ignore_ascii_case("temp")) && !is_of_schema(context.action) {
        return Err(TEMPORARY.into());
    }
    match context.action {
        AuthAction::Select
        | AuthAction::Recursive
        | AuthAction::Insert { .. }
        | AuthAction::Update { .. }
        | AuthAction::Delete { .. } => Ok(Allowed::Rows),
        AuthAction::Read { table_name, .. } => read(table_name),
        AuthAction::Function { function_name } => function(function_name),
        AuthAction::CreateTable { .. }
        | AuthAction::CreateIndex { .. }
        | AuthAction::CreateTrigger { .. }
        | AuthAction::CreateView { .. }
        | AuthAction::DropTable { .. }
        | AuthAction::DropIndex { .. }
        | AuthAction::DropTrigger { .. }
        | AuthAction::DropView { .. }
        | AuthAction::AlterTable { .. }
        | AuthAction::Reindex { .. } => Ok(Allowed::Schema),
        AuthAction::Transaction { operation } => Err(format!(
            "{} is refused: a batch is one transaction, done whole or not at all. Send all its statements together, with \
             \"must\": 1 at those that have to change or find a row",
            match operation {
                TransactionOperation::Begin => "BEGIN",
                TransactionOperation::Rollback => "ROLLBACK",
                _ => "COMMIT",
            }
        )),
        AuthAction::Savepoint { .. } => Err(
            "SAVEPOINT is refused: a batch is done whole or not at all; send what may fail alone as a batch of its own"
                .into(),
        ),
        AuthAction::Attach { .. } | AuthAction::Detach { .. } => {
            Err("ATTACH and DETACH are refused: a namespace is one database".into())
        }
        AuthAction::Pragma { pragma_name, .. } => Err(format!(
            "PRAGMA {pragma_name} is refused: settings are the same at all replicas, and foreign keys are on. Read \
             sqlite_schema for what there is"
        )),
        AuthAction::Analyze { .. } => Err("ANALYZE is refused: plans have to be the same at all replicas".into()),
        AuthAction::CreateVtable { .. } | AuthAction::DropVtable { .. } => {
            Err("virtual tables are refused: replicas could not be compared".into())
        }
        AuthAction::CreateTempTable { .. }
        | AuthAction::CreateTempIndex { .. }
        | AuthAction::CreateTempTrigger { .. }
        | AuthAction::CreateTempView { .. }
        | AuthAction::DropTempTable { .. }
        | AuthAction::DropTempIndex { .. }
        | AuthAction::DropTempTrigger { .. }
        | AuthAction::DropTempView { .. } => Err(TEMPORARY.into()),
        other => Err(format!("{other:?} is refused")),
    }
}

const TEMPORARY: &str =
    "temporary tables, views and triggers are refused: no replica but one would have them; use WITH";

/// Beside changes of a table SQLite looks for temporary triggers and views of it, of which there are none.
fn is_of_schema(action: AuthAction<'_>) -> bool {
    match action {
        AuthAction::Read { table_name, .. }
        | AuthAction::Update { table_name, .. }
        | AuthAction::Delete { table_name } => ["sqlite_temp_master", "sqlite_temp_schema"].contains(&table_name),
        AuthAction::Select => true,
        _ => false,
    }
}

fn read(table: &str) -> Result<Allowed, String> {
    let name = table.to_ascii_lowercase();
    let is_own = name.starts_with("sqlite_") && !name.starts_with("sqlite_temp_");
    match is_own && !READ.contains(&&*name) || NO_TABLES.contains(&&*name) || name.starts_with("pragma_") {
        true => Err(format!("table {table} is refused: what it shows differs from replica to replica")),
        false => Ok(Allowed::Rows),
    }
}

fn function(function: &str) -> Result<Allowed, String> {
    let name = function.to_ascii_lowercase();
    // SQLite calls these when a table is altered; nobody else can.
    let is_inner = ["sqlite_rename_", "sqlite_drop_", "sqlite_add_", "sqlite_find_", "sqlite_fail"];
    if FUNCTIONS.contains(&&*name) || is_inner.iter().any(|inner| name.starts_with(inner)) {
        return Ok(Allowed::Rows);
    }
    Err(format!("function {function} is refused: it may give something else at another replica, or is not of SQL"))
}
