//! Which tests run at the same time.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static TURN: RwLock<()> = RwLock::new(());

/// Holds back other tests while it lives.
pub struct Turn {
    _held: Held,
}

enum Held {
    Alone { _guard: RwLockWriteGuard<'static, ()> },
    Beside { _guard: RwLockReadGuard<'static, ()> },
}

/// No other test runs meanwhile.
pub(crate) fn alone() -> Turn {
    Turn { _held: Held::Alone { _guard: TURN.write().unwrap_or_else(PoisonError::into_inner) } }
}

/// Others of this kind run meanwhile.
pub(crate) fn beside() -> Turn {
    Turn { _held: Held::Beside { _guard: TURN.read().unwrap_or_else(PoisonError::into_inner) } }
}
