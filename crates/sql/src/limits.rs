//! Numbers of the `sql` class, with units and reasons. What decides how a batch ends is the same at every replica: such a number is
//! changed with the level of programs (`base/src/level.rs`) alone.

/// Bytes of one batch or query as JSON: one entry of the log that holds up nobody for long.
pub const BATCH_BYTES_MAX: usize = 1 << 20;
/// Statements of one batch.
pub const STATEMENTS_MAX: usize = 256;
/// Bytes of one statement's text: data goes in arguments.
pub const SQL_BYTES_MAX: usize = 64 << 10;
/// Semicolons in one statement's text: triggers have some. SQLite's binding looks at what follows each by calling itself.
pub const SEMICOLONS_MAX: usize = 256;
/// Arguments of one statement.
pub const ARGS_MAX: usize = 1_000;
/// Bytes of one value or row: what sorts and joins keep in memory is a multiple of it.
pub const VALUE_BYTES_MAX: usize = 256 << 10;
/// Rows that one batch or query gives ...
pub const ROWS_MAX: usize = 10_000;
/// ... and bytes of them: the leader keeps answers for who asks again.
pub const RESULT_BYTES_MAX: usize = 1 << 20;
/// Steps of SQLite's virtual machine are counted by so many.
pub const STEPS_COUNTED: u32 = 1_000;
/// Steps of one batch: a fifth of a second or so on each member, in which it does nothing else.
pub const BATCH_STEPS_MAX: u32 = 2_000_000;
/// Steps of one query, at the leader.
pub const QUERY_STEPS_MAX: u32 = 2_000_000;
/// Bytes of a row and steps of a statement that keeps rows in memory, the first that is enough: some 350 MiB at most of any, as a
/// row that is kept takes a few steps.
pub const KEPT: &[(usize, u32)] =
    &[(VALUE_BYTES_MAX, 2_000), (16 << 10, 32_000), (1 << 10, 512_000), (256, QUERY_STEPS_MAX)];
/// Of a statement when SQLite has put views, clauses and columns in place of their names (`weight.rs`): some 230 B and a microsecond
/// each at most.
pub const WEIGHT_MAX: u64 = 250_000;
/// Of each `select` and each name that something stands for, beside what is in it: putting one in place takes time by how many there are.
pub const WEIGHT_OF_SELECT: u64 = 64;
/// What is heavier than this counts as steps ...
pub const WEIGHT_FREE: u64 = 4_096;
/// ... so many for each.
pub const STEPS_BY_WEIGHT: u64 = 2;
/// Steps to look at an image from outside: to make its schema anew, and to check its rows, of which these are without their bytes ...
pub const LOAD_STEPS: u32 = 8_000_000;
/// ... and these for each byte: some bytes of a row are one column, which takes a few.
pub const LOAD_STEPS_BY_BYTE: u32 = 4;
/// Bytes of a schema that are one step, when they are read again since they have changed.
pub const BYTES_BY_STEP: u64 = 64;
/// Statements of which a replica remembers what it found out about them: programs have some dozens.
pub const STATEMENTS_KNOWN: usize = 64;
/// Bytes of the text of such a statement.
pub const KNOWN_BYTES_MAX: usize = 4 << 10;
/// Brackets, clauses and views within each other.
pub const NESTED_MAX: usize = 200;
/// Columns of a table or of what is given: SQLite's own bound, lowered.
pub const COLUMNS_MAX: usize = 500;
/// Largest database, bytes, and what it is without a word: it lies in the memory of each member, and whole in each snapshot.
pub const SIZE_MAX: u64 = 64 << 20;
/// The least that may be declared: some tables with an index each.
pub const SIZE_MIN: u64 = 1 << 20;
/// Bytes of a page: SQLite's own.
pub const PAGE_BYTES: u64 = 4_096;
/// Bytes of a database's image in one part of a snapshot.
pub const PART_BYTES: usize = 64 << 10;

const _: () = assert!(SQL_BYTES_MAX < BATCH_BYTES_MAX, "a statement fits into a batch");
const _: () = assert!(WEIGHT_MAX * STEPS_BY_WEIGHT < BATCH_STEPS_MAX as u64, "the heaviest statement can be run");
const _: () = assert!(SIZE_MIN < SIZE_MAX && SIZE_MAX < u32::MAX as u64, "a size is some pages");
