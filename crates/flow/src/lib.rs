//! How much, how fast, to whom. Retry, windows, stages, limits and balancing exist once, here (house rule 9), and know
//! neither who sends nor what is stored.

pub mod admission;
pub mod backoff;
pub mod balance;
pub mod doors;
pub mod floor;
pub mod hedge;
pub mod histogram;
pub mod limit;
pub mod limits;
pub mod overload;
pub mod rate;
pub mod stage;
pub mod window;

pub use backoff::Backoff;
pub use balance::pick_less_loaded;
pub use histogram::Histogram;
pub use limit::Limit;
pub use rate::Rate;
pub use stage::Stage;
pub use window::Window;
