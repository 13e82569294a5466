//! What the cluster keeps for mail: who has a mailbox (`account.rs`, class `linear`) and what is in it (`mailbox.rs`,
//! class `object`); and who has one open at this clone (`turns.rs`), and reads on (`ahead.rs`).

mod account;
mod ahead;
mod mailbox;
mod turns;

pub use account::{Account, Accounts, Alias, Managed};
pub use ahead::Ahead;
pub use mailbox::Mailboxes;
pub use turns::{Turn, Turns};
