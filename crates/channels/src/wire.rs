//! Bytes between two nodes. Unknown fields are skipped. `boot` is the sender's life, `of` the receiver's: what was meant for another
//! life of either is not heard.

use bytes::Bytes;

/// Interest, or that it has come, or both.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Told {
    #[prost(uint64, tag = "1")]
    pub boot: u64,
    #[prost(uint64, tag = "2")]
    pub of: u64,
    #[prost(message, optional, tag = "3")]
    pub page: Option<Page>,
    #[prost(message, optional, tag = "4")]
    pub ack: Option<Ack>,
}

/// All that has changed behind one number up to another.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Page {
    /// None: from the beginning.
    #[prost(uint64, optional, tag = "1")]
    pub from: Option<u64>,
    #[prost(uint64, tag = "2")]
    pub to: u64,
    /// Of what ended up to this number nothing is told any more.
    #[prost(uint64, tag = "3")]
    pub floor: u64,
    /// There is no more.
    #[prost(bool, tag = "4")]
    pub last: bool,
    #[prost(message, repeated, tag = "5")]
    pub entries: Vec<Entry>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Entry {
    #[prost(string, tag = "1")]
    pub namespace: String,
    /// 1 channel, 2 shard channel, 3 pattern, 4 all of the namespace.
    #[prost(uint32, tag = "2")]
    pub kind: u32,
    #[prost(bytes = "bytes", tag = "3")]
    pub name: Bytes,
    /// Clients that listen; none: it is over.
    #[prost(uint64, tag = "4")]
    pub count: u64,
}

/// What has come of the receiver's interest; without a number nothing has.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Ack {
    #[prost(uint64, optional, tag = "1")]
    pub have: Option<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Batch {
    #[prost(uint64, tag = "1")]
    pub boot: u64,
    #[prost(uint64, tag = "2")]
    pub of: u64,
    /// Numbers begin anew with a later stream.
    #[prost(uint64, tag = "3")]
    pub stream: u64,
    /// The number of the first message.
    #[prost(uint64, tag = "4")]
    pub first: u64,
    #[prost(message, repeated, tag = "5")]
    pub messages: Vec<Sent>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Sent {
    #[prost(string, tag = "1")]
    pub namespace: String,
    #[prost(bool, tag = "2")]
    pub shard: bool,
    #[prost(bytes = "bytes", tag = "3")]
    pub channel: Bytes,
    #[prost(bytes = "bytes", tag = "4")]
    pub payload: Bytes,
}
