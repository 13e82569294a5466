//! How much, how fast, to whom. Retry, windows and balancing exist once, here (house rule 9), and know neither who
//! sends nor what is stored.

pub mod backoff;
pub mod balance;
pub mod window;

pub use backoff::Backoff;
pub use balance::pick_two;
pub use window::Window;
