//! What a function of class `linear` says, as doors have it: behind the word that Redis' clients know it by.

use state::linear::Wrong;

pub fn said(wrong: Wrong) -> String {
    let word = match wrong {
        Wrong::Type => "WRONGTYPE",
        Wrong::NoGroup => "NOGROUP",
        Wrong::GroupExists => "BUSYGROUP",
        Wrong::BytesMax | Wrong::KeysMax => "OOM",
        _ => "ERR",
    };
    format!("{word} {}", wrong.why())
}
