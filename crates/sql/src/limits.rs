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
/// Largest database, bytes, and what it is without a word: it lies in the memory of each member, and whole in each snapshot.
pub const SIZE_MAX: u64 = 64 << 20;
/// The least that may be declared: some tables with an index each.
pub const SIZE_MIN: u64 = 1 << 20;
/// Bytes of a page: SQLite's own.
pub const PAGE_BYTES: u64 = 4_096;
/// Bytes of a database's image in one part of a snapshot.
pub const PART_BYTES: usize = 64 << 10;

const _: () = assert!(SQL_BYTES_MAX < BATCH_BYTES_MAX, "a statement fits into a batch");
const _: () = assert!(SIZE_MIN < SIZE_MAX && SIZE_MAX < u32::MAX as u64, "a size is some pages");
