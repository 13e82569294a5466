//! What the cluster keeps for mail: who has a mailbox (`account.rs`, class `linear`) and what is in it (`mailbox.rs`,
//! class `object`).

mod account;
mod mailbox;

pub use account::{Account, Accounts, Alias, Managed};
pub use mailbox::Mailboxes;
