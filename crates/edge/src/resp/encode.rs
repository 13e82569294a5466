//! Replies to bytes, in RESP2 or RESP3, and the bytes' way out: small ones are gathered, values are written from where
//! they lie. Knows nothing of commands.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::Bytes;

use super::limits::*;

/// Which dialect a client speaks. RESP2 until it says HELLO 3.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Protocol {
    #[default]
    Resp2,
    Resp3,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// `+OK`, `+PONG`.
    Simple(&'static str),
    /// Starts with its code: `ERR ...`, `BUSY ...`.
    Error(String),
    Int(i64),
    Bulk(Bytes),
    /// A number with a fraction, as its text: a double in RESP3, bulk in RESP2.
    Double(Bytes),
    /// No such value.
    Nil,
    /// No such list.
    NilList,
    List(Vec<Reply>),
    /// A map in RESP3, a flat list of keys and values in RESP2.
    Map(Vec<(Reply, Reply)>),
    /// A list of lists of two in RESP3, a flat list in RESP2.
    Pairs(Vec<(Reply, Reply)>),
    /// A map in RESP3, a list of lists of two in RESP2.
    Named(Vec<(Reply, Reply)>),
    /// A set in RESP3, a list in RESP2.
    Set(Vec<Reply>),
    /// Text for people: verbatim in RESP3, bulk in RESP2.
    Text(String),
    /// Encoded already, in the dialect of whom it is for.
    Made(Bytes),
    /// Out of turn in RESP3, a list in RESP2.
    Push(Vec<Reply>),
    /// The same, encoded but for its first byte.
    Told(Bytes),
    /// Keys that have changed, as a list that is encoded already; none: all. A message on a channel in RESP2.
    Stale(Option<Bytes>),
    /// One behind the other: what one command answers in several replies.
    Several(Vec<Reply>),
}

impl Reply {
    pub const OK: Reply = Reply::Simple("OK");

    pub fn word(word: &'static str) -> Self {
        Self::Bulk(Bytes::from_static(word.as_bytes()))
    }

    pub fn text(text: impl Into<String>) -> Self {
        Self::Bulk(Bytes::from(text.into()))
    }

    pub fn error(text: impl Into<String>) -> Self {
        Self::Error(text.into())
    }

    pub fn is_error(&self) -> bool {
        matches!(self, Self::Error(_))
    }

    /// What of it comes to a client that wants no replies: what is none, as that it listens now.
    pub fn unasked(self) -> Self {
        match self {
            Self::Several(replies) => {
                Self::Several(replies.into_iter().filter(|reply| matches!(reply, Self::Push(_))).collect())
            }
            _ => Self::Several(Vec::new()),
        }
    }

    /// About how many bytes of memory it holds.
    pub fn bytes(&self) -> usize {
        let inside = match self {
            Self::Simple(_) | Self::Int(_) | Self::Nil | Self::NilList | Self::Stale(None) => 0,
            Self::Stale(Some(keys)) => keys.len(),
            Self::Error(text) | Self::Text(text) => text.len(),
            Self::Bulk(value) | Self::Double(value) | Self::Told(value) | Self::Made(value) => value.len(),
            Self::List(items) | Self::Set(items) | Self::Push(items) | Self::Several(items) => {
                items.iter().map(Self::bytes).sum()
            }
            Self::Map(pairs) | Self::Pairs(pairs) | Self::Named(pairs) => {
                pairs.iter().map(|(key, value)| key.bytes() + value.bytes()).sum()
            }
        };
        size_of::<Self>() + inside
    }
}

/// What a client that keeps values is told before the keys.
const STALE: &[u8] = b">2\r\n$10\r\ninvalidate\r\n";
const STALE_MESSAGE: &[u8] = b"*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n";

/// Appends a bulk string.
pub fn bulk(into: &mut Vec<u8>, value: &[u8]) {
    into.extend_from_slice(format!("${}\r\n", value.len()).as_bytes());
    into.extend_from_slice(value);
    into.extend_from_slice(b"\r\n");
}

/// What a connection has still to write. Its memory is what is unwritten and one chunk: nothing is moved when more comes, and
/// what is written is given back.
#[derive(Default, Debug)]
pub struct Out {
    /// All that stands before `text` and `values`, in order.
    full: VecDeque<Bytes>,
    /// Small bytes, in order; those before `text_done` are written.
    text: Vec<u8>,
    text_done: usize,
    /// Values that lie elsewhere, each after the text up to its position.
    values: VecDeque<(usize, Bytes)>,
    bytes: usize,
}

impl Out {
    /// Bytes still to be written.
    pub fn len(&self) -> usize {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    pub fn push(&mut self, reply: Reply, protocol: Protocol) {
        match reply {
            Reply::Simple(word) => {
                self.put(b"+");
                self.put(word.as_bytes());
                self.put(b"\r\n");
            }
            Reply::Error(text) => {
                self.put(b"-");
                // A line end in it would be read as the start of the next reply.
                self.put(text.replace(['\r', '\n'], " ").as_bytes());
                self.put(b"\r\n");
            }
            Reply::Int(n) => self.line(b':', n),
            Reply::Bulk(value) => {
                self.line(b'$', value.len() as i64);
                self.share(value);
                self.put(b"\r\n");
            }
            Reply::Double(text) if protocol == Protocol::Resp3 => {
                self.put(b",");
                self.put(&text);
                self.put(b"\r\n");
            }
            Reply::Double(text) => self.push(Reply::Bulk(text), protocol),
            Reply::Made(made) => self.share(made),
            Reply::Push(items) => self.items(Self::of_push(protocol), items, protocol),
            Reply::Told(told) => {
                self.put(&[Self::of_push(protocol)]);
                self.share(told);
            }
            Reply::Stale(keys) => {
                let resp3 = protocol == Protocol::Resp3;
                self.put(if resp3 { STALE } else { STALE_MESSAGE });
                match keys {
                    Some(keys) => self.share(keys),
                    None => self.push(Reply::NilList, protocol),
                }
            }
            Reply::Several(replies) => replies.into_iter().for_each(|reply| self.push(reply, protocol)),
            Reply::Text(text) if protocol == Protocol::Resp3 => {
                self.line(b'=', text.len() as i64 + 4);
                self.put(b"txt:");
                self.put(text.as_bytes());
                self.put(b"\r\n");
            }
            Reply::Text(text) => self.push(Reply::text(text), protocol),
            Reply::Nil | Reply::NilList if protocol == Protocol::Resp3 => self.put(b"_\r\n"),
            Reply::NilList => self.put(b"*-1\r\n"),
            Reply::Nil => self.put(b"$-1\r\n"),
            Reply::List(items) => self.items(b'*', items, protocol),
            Reply::Set(items) if protocol == Protocol::Resp3 => self.items(b'~', items, protocol),
            Reply::Set(items) => self.items(b'*', items, protocol),
            Reply::Pairs(pairs) => {
                let flat = protocol == Protocol::Resp2;
                self.line(b'*', pairs.len() as i64 * if flat { 2 } else { 1 });
                for (key, value) in pairs {
                    if !flat {
                        self.line(b'*', 2);
                    }
                    self.push(key, protocol);
                    self.push(value, protocol);
                }
            }
            Reply::Named(pairs) if protocol == Protocol::Resp3 => self.push(Reply::Map(pairs), protocol),
            Reply::Named(pairs) => {
                let lists = pairs.into_iter().map(|(name, value)| Reply::List(vec![name, value])).collect();
                self.items(b'*', lists, protocol);
            }
            Reply::Map(pairs) => {
                match protocol {
                    Protocol::Resp3 => self.line(b'%', pairs.len() as i64),
                    Protocol::Resp2 => self.line(b'*', pairs.len() as i64 * 2),
                }
                for (key, value) in pairs {
                    self.push(key, protocol);
                    self.push(value, protocol);
                }
            }
        }
    }

    /// The next segments to write, into `into`; how many there are.
    pub fn segments<'a>(&'a self, into: &mut [IoSlice<'a>; OUT_SEGMENTS_MAX]) -> usize {
        let mut count = 0;
        for part in self.full.iter().take(OUT_SEGMENTS_MAX) {
            into[count] = IoSlice::new(part);
            count += 1;
        }
        let mut from = self.text_done;
        for (at, value) in &self.values {
            for part in [&self.text[from..*at], &value[..]] {
                if count == OUT_SEGMENTS_MAX {
                    return count;
                }
                if !part.is_empty() {
                    into[count] = IoSlice::new(part);
                    count += 1;
                }
            }
            from = *at;
        }
        if from < self.text.len() && count < OUT_SEGMENTS_MAX {
            into[count] = IoSlice::new(&self.text[from..]);
            count += 1;
        }
        count
    }

    /// `n` bytes have been written.
    pub fn advance(&mut self, mut n: usize) {
        assert!(n <= self.bytes, "{n} bytes written of {}", self.bytes);
        self.bytes -= n;
        while n > 0
            && let Some(part) = self.full.front_mut()
        {
            if n < part.len() {
                bytes::Buf::advance(part, n);
                return;
            }
            n -= part.len();
            self.full.pop_front();
        }
        while n > 0 {
            let end = self.values.front().map_or(self.text.len(), |(at, _)| *at);
            let text = n.min(end - self.text_done);
            self.text_done += text;
            n -= text;
            if n == 0 {
                break;
            }
            let (_, value) = self.values.front_mut().expect("what is left to count off lies in a value");
            if n < value.len() {
                bytes::Buf::advance(value, n);
                break;
            }
            n -= value.len();
            self.values.pop_front();
        }
        if self.bytes == 0 {
            self.text_done = 0;
            self.text.clear();
            // Idle clients keep little.
            self.text.shrink_to(READ_BYTES_MIN);
            if self.full.capacity().max(self.values.capacity()) > OUT_SEGMENTS_MAX {
                (self.full, self.values) = Default::default();
            }
        }
    }

    /// Closes the chunk that is written into.
    fn seal(&mut self) {
        let whole = Bytes::from(std::mem::replace(&mut self.text, Vec::with_capacity(OUT_CHUNK_BYTES)));
        let mut from = std::mem::take(&mut self.text_done);
        for (at, value) in std::mem::take(&mut self.values) {
            self.full.extend([whole.slice(from..at), value].into_iter().filter(|part| !part.is_empty()));
            from = at;
        }
        self.full.extend(Some(whole.slice(from..)).filter(|part| !part.is_empty()));
    }

    fn of_push(protocol: Protocol) -> u8 {
        if protocol == Protocol::Resp3 { b'>' } else { b'*' }
    }

    /// Large ones are written from where they lie.
    fn share(&mut self, value: Bytes) {
        if value.len() >= OUT_SHARED_BYTES_MIN {
            self.bytes += value.len();
            self.values.push_back((self.text.len(), value));
        } else {
            self.put(&value);
        }
    }

    fn items(&mut self, kind: u8, items: Vec<Reply>, protocol: Protocol) {
        self.line(kind, items.len() as i64);
        for item in items {
            self.push(item, protocol);
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        if self.text.len() + bytes.len() > OUT_CHUNK_BYTES && !self.text.is_empty() {
            self.seal();
        }
        self.text.extend_from_slice(bytes);
        self.bytes += bytes.len();
    }

    /// `<kind><n>\r\n`.
    fn line(&mut self, kind: u8, n: i64) {
        let mut digits = [0u8; 24];
        let mut at = digits.len() - 2;
        digits[at..].copy_from_slice(b"\r\n");
        let mut rest = n.unsigned_abs();
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if n < 0 {
            at -= 1;
            digits[at] = b'-';
        }
        at -= 1;
        digits[at] = kind;
        self.put(&digits[at..]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn drain(out: &mut Out, step: usize) -> Vec<u8> {
        let mut all = vec![];
        while !out.is_empty() {
            let mut slices = [IoSlice::new(&[]); OUT_SEGMENTS_MAX];
            let count = out.segments(&mut slices);
            let bytes: Vec<u8> = slices[..count].iter().flat_map(|s| s.to_vec()).take(step).collect();
            all.extend_from_slice(&bytes);
            out.advance(bytes.len());
        }
        all
    }

    fn check(reply: Reply, resp2: &str, resp3: &str) {
        for (protocol, expect) in [(Protocol::Resp2, resp2), (Protocol::Resp3, resp3)] {
            let mut out = Out::default();
            out.push(reply.clone(), protocol);
            assert_eq!(String::from_utf8(drain(&mut out, usize::MAX)).unwrap(), expect, "{protocol:?}");
        }
    }

    #[test]
    fn replies_have_these_bytes() {
        check(Reply::OK, "+OK\r\n", "+OK\r\n");
        check(Reply::error("ERR a\r\nb"), "-ERR a  b\r\n", "-ERR a  b\r\n");
        check(Reply::Int(i64::MIN), ":-9223372036854775808\r\n", ":-9223372036854775808\r\n");
        check(Reply::Int(0), ":0\r\n", ":0\r\n");
        check(Reply::Nil, "$-1\r\n", "_\r\n");
        check(Reply::NilList, "*-1\r\n", "_\r\n");
        let pair = || vec![(Reply::word("a"), Reply::Int(1))];
        check(Reply::Named(pair()), "*1\r\n*2\r\n$1\r\na\r\n:1\r\n", "%1\r\n$1\r\na\r\n:1\r\n");
        check(Reply::Pairs(pair()), "*2\r\n$1\r\na\r\n:1\r\n", "*1\r\n*2\r\n$1\r\na\r\n:1\r\n");
        let push = || vec![Reply::word("a"), Reply::Int(1)];
        check(Reply::Push(push()), "*2\r\n$1\r\na\r\n:1\r\n", ">2\r\n$1\r\na\r\n:1\r\n");
        check(Reply::Told("1\r\n:2\r\n".into()), "*1\r\n:2\r\n", ">1\r\n:2\r\n");
        let message = "*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n";
        let stale = ">2\r\n$10\r\ninvalidate\r\n";
        check(Reply::Stale(Some("*0\r\n".into())), &format!("{message}*0\r\n"), &format!("{stale}*0\r\n"));
        check(Reply::Stale(None), &format!("{message}*-1\r\n"), &format!("{stale}_\r\n"));
        check(Reply::Several(push()), "$1\r\na\r\n:1\r\n", "$1\r\na\r\n:1\r\n");
        check(Reply::word(""), "$0\r\n\r\n", "$0\r\n\r\n");
        check(Reply::Double("-1.5".into()), "$4\r\n-1.5\r\n", ",-1.5\r\n");
        check(Reply::Text("a".into()), "$1\r\na\r\n", "=5\r\ntxt:a\r\n");
        let list = vec![Reply::word("a"), Reply::Nil];
        check(Reply::List(list.clone()), "*2\r\n$1\r\na\r\n$-1\r\n", "*2\r\n$1\r\na\r\n_\r\n");
        check(Reply::Set(list), "*2\r\n$1\r\na\r\n$-1\r\n", "~2\r\n$1\r\na\r\n_\r\n");
        check(
            Reply::Map(vec![(Reply::word("a"), Reply::Int(1))]),
            "*2\r\n$1\r\na\r\n:1\r\n",
            "%1\r\n$1\r\na\r\n:1\r\n",
        );
    }

    #[test]
    fn big_values_are_not_copied() {
        let value = Bytes::from(vec![7u8; OUT_SHARED_BYTES_MIN]);
        let mut out = Out::default();
        out.push(Reply::Bulk(value.clone()), Protocol::Resp2);
        let mut slices = [IoSlice::new(&[]); OUT_SEGMENTS_MAX];
        assert_eq!(out.segments(&mut slices), 3);
        assert_eq!(slices[1].as_ptr(), value.as_ptr());
    }

    #[test]
    fn who_never_takes_quite_all_has_little_kept() {
        let mut out = Out::default();
        let value = Bytes::from(vec![7u8; OUT_SHARED_BYTES_MIN]);
        let (mut sent, mut came) = (vec![], vec![]);
        for n in 0..200 {
            let small = Bytes::from(vec![n; OUT_SHARED_BYTES_MIN - 1]);
            for value in [small, value.clone()] {
                sent.extend_from_slice(format!("${}\r\n", value.len()).as_bytes());
                sent.extend_from_slice(&value);
                sent.extend_from_slice(b"\r\n");
                out.push(Reply::Bulk(value), Protocol::Resp2);
            }
            while out.len() > 1 {
                let mut slices = [IoSlice::new(&[]); OUT_SEGMENTS_MAX];
                let count = out.segments(&mut slices);
                let bytes: Vec<u8> = slices[..count].iter().flat_map(|s| s.to_vec()).take(out.len() - 1).collect();
                came.extend_from_slice(&bytes);
                out.advance(bytes.len());
            }
        }
        assert!(
            out.text.capacity() <= OUT_CHUNK_BYTES && out.full.len() <= 2,
            "{}, {:?}",
            out.text.capacity(),
            out.full
        );
        came.extend(drain(&mut out, usize::MAX));
        assert!(came == sent);
    }

    proptest! {
        #[test]
        fn bytes_come_out_in_order_however_little_the_socket_takes(
            sizes in prop::collection::vec(prop_oneof![0..20usize, 1900..3000usize, 60_000..70_000usize], 1..90),
            step in prop_oneof![1..5000usize, 1..500_000usize],
        ) {
            let mut out = Out::default();
            let mut expect = vec![];
            for (i, &size) in sizes.iter().enumerate() {
                let value = vec![i as u8; size];
                expect.extend_from_slice(format!("${size}\r\n").as_bytes());
                expect.extend_from_slice(&value);
                expect.extend_from_slice(b"\r\n");
                out.push(Reply::Bulk(value.into()), Protocol::Resp2);
            }
            prop_assert_eq!(out.len(), expect.len());
            prop_assert_eq!(drain(&mut out, step), expect);
            prop_assert!(out.text.is_empty() && out.values.is_empty() && out.full.is_empty());
        }
    }
}
