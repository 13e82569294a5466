//! What a door asks of whoever runs scripts, as bytes in the last argument of a step; keys stand before it, so that the step is sent
//! to where they are.

use bytes::{Buf, BufMut, Bytes};
use state::linear::Step;
use state::linear::functions::script::{RUN, RUN_KEYLESS};

use crate::resp::encode::Protocol;

#[derive(Clone, PartialEq, Debug)]
pub struct Request {
    pub what: What,
    /// It may change nothing.
    pub reads_only: bool,
    /// Its reply is written in this dialect.
    pub protocol: Protocol,
    pub keys: Vec<Bytes>,
    pub args: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Debug)]
pub enum What {
    /// Run the script of this digest; its text, if whoever asks has it.
    Run { sha: Bytes, text: Option<Bytes> },
    /// Know this script from now on.
    Load { text: Bytes },
    /// Run the function of this name, of a library.
    Call { function: Bytes },
    /// What does this library register? Nothing comes of it.
    Library { code: Bytes },
    /// Are scripts of these digests known? They are the arguments.
    Exists,
    /// Know none.
    Flush,
    /// Which scripts are withheld here, as the node ended while they ran?
    Withheld,
    /// Withhold those of these digests no more. They are the arguments.
    Release,
}

const RUNS: u8 = 0;
const LOADS: u8 = 1;
const EXISTS: u8 = 2;
const FLUSHES: u8 = 3;
const CALLS: u8 = 4;
const LIBRARY: u8 = 5;
const WITHHELD: u8 = 6;
const RELEASES: u8 = 7;
const READS_ONLY: u8 = 1;
const RESP3: u8 = 2;
const HAS_TEXT: u8 = 4;

impl Request {
    pub fn step(self) -> Step {
        let mut bytes = Vec::new();
        let (what, text, sha) = match &self.what {
            What::Run { sha, text } => (RUNS, text.clone(), sha.clone()),
            What::Load { text } => (LOADS, Some(text.clone()), Bytes::new()),
            What::Call { function } => (CALLS, None, function.clone()),
            What::Library { code } => (LIBRARY, Some(code.clone()), Bytes::new()),
            What::Exists => (EXISTS, None, Bytes::new()),
            What::Flush => (FLUSHES, None, Bytes::new()),
            What::Withheld => (WITHHELD, None, Bytes::new()),
            What::Release => (RELEASES, None, Bytes::new()),
        };
        let flag = |is: bool, flag| if is { flag } else { 0 };
        bytes.put_u8(what);
        bytes.put_u8(
            flag(self.reads_only, READS_ONLY)
                | flag(self.protocol == Protocol::Resp3, RESP3)
                | flag(text.is_some(), HAS_TEXT),
        );
        for part in [sha, text.unwrap_or_default()].iter().chain(&self.args) {
            bytes.put_u32(part.len() as u32);
            bytes.put_slice(part);
        }
        let mut args = self.keys;
        let (key, function) = if args.is_empty() { (Bytes::new(), RUN_KEYLESS) } else { (args.remove(0), RUN) };
        args.push(bytes.into());
        Step::new(key, function, args)
    }

    /// None: these are not the bytes of a request.
    pub fn of(step: &Step) -> Option<Self> {
        let (request, others) = step.args.split_last()?;
        let mut bytes = request.clone();
        if bytes.len() < 2 {
            return None;
        }
        let (what, flags) = (bytes.get_u8(), bytes.get_u8());
        let mut parts = Vec::new();
        while bytes.has_remaining() {
            let len = bytes.try_get_u32().ok()? as usize;
            if len > bytes.len() {
                return None;
            }
            parts.push(bytes.split_to(len));
        }
        if parts.len() < 2 {
            return None;
        }
        let args = parts.split_off(2);
        let (text, sha) = (parts.pop()?, parts.pop()?);
        let text = Some(text).filter(|_| flags & HAS_TEXT != 0);
        let what = match what {
            RUNS => What::Run { sha, text },
            LOADS => What::Load { text: text? },
            CALLS => What::Call { function: sha },
            LIBRARY => What::Library { code: text? },
            EXISTS => What::Exists,
            FLUSHES => What::Flush,
            WITHHELD => What::Withheld,
            RELEASES => What::Release,
            _ => return None,
        };
        let own = (step.function == RUN).then(|| step.key.clone());
        let keys = own.into_iter().chain(others.iter().cloned()).collect();
        let protocol = if flags & RESP3 != 0 { Protocol::Resp3 } else { Protocol::Resp2 };
        Some(Self { what, reads_only: flags & READS_ONLY != 0, protocol, keys, args })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_comes_as_it_was_said_and_rubbish_does_not() {
        let all = [
            What::Run { sha: "abc".into(), text: None },
            What::Run { sha: "abc".into(), text: Some(Bytes::new()) },
            What::Load { text: "return 1".into() },
            What::Call { function: "f".into() },
            What::Library { code: "code".into() },
            What::Exists,
            What::Flush,
            What::Withheld,
            What::Release,
        ];
        for what in all {
            for keys in [vec![], vec![Bytes::from("a")], vec![Bytes::from("a"), Bytes::from("b")]] {
                let args = vec![Bytes::new(), Bytes::from("x\0")];
                let request = Request { what: what.clone(), reads_only: true, protocol: Protocol::Resp3, keys, args };
                let step = request.clone().step();
                assert_eq!(Request::of(&step), Some(request));
                let whole = step.args.last().unwrap().clone();
                for cut in 0..whole.len() {
                    let mut step = step.clone();
                    *step.args.last_mut().unwrap() = whole.slice(..cut);
                    // It may be a shorter one, but nothing breaks.
                    let _ = Request::of(&step);
                }
            }
        }
        assert_eq!(Request::of(&Step::new("a".into(), RUN, vec![])), None);
    }
}
