//! Bytes of a broadcast between two nodes: its head; the message is the frame's body. Unknown fields are skipped.

use bytes::Bytes;
use prost::Message as _;

/// Boot and number name a broadcast of its sender. Without a service it is the confirmation of one.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Head {
    #[prost(uint64, tag = "1")]
    pub boot: u64,
    #[prost(uint64, tag = "2")]
    pub number: u64,
    #[prost(string, tag = "3")]
    pub service: String,
    #[prost(string, tag = "4")]
    pub from: String,
}

impl Head {
    pub fn bytes(&self) -> Bytes {
        self.encode_to_vec().into()
    }

    pub fn read(bytes: &[u8]) -> Option<Self> {
        Self::decode(bytes).ok()
    }
}

/// Reading these bytes does not panic, and what was read is written and read as the same.
#[cfg(test)]
pub(super) fn holds(bytes: &[u8]) {
    if let Some(head) = Head::read(bytes) {
        assert_eq!(Head::read(&head.bytes()).as_ref(), Some(&head));
    }
}
