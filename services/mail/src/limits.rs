//! Numbers of the mail service, with units and reasons.

use std::time::Duration;

/// A command of SMTP with its parameters, bytes with the line's end: RFC 5321 gives 512, and each extension adds to
/// it.
pub const COMMAND_BYTES_MAX: usize = 4096;
/// A command of POP3: 255 by RFC 2449, and more for the first answer of a SASL exchange.
pub const POP_COMMAND_BYTES_MAX: usize = 2048;
/// A message, MiB, unless the operator says otherwise: what large providers take, 25 MB, has a third more when it is coded as text.
pub const MESSAGE_MIB: usize = 50;
/// ... and at most: an object holds 64 MiB, and our own fields stand before the message.
pub const MESSAGE_MIB_MAX: usize = 63;
/// Messages of more bytes are stored and read by few at a time, in one clone: each takes so much memory on its way.
pub const LARGE_BYTES: usize = 1 << 20;
pub const LARGE_AT_A_TIME: usize = 2;
/// `Return-Path`, `Delivered-To`, `Received` and `Authentication-Results` together: two addresses, two names.
pub const OWN_FIELDS_BYTES_MAX: usize = 4096;
/// A piece of a message that announces more is not read to its end: its client is told and the connection closed.
pub const CHUNK_BYTES_MAX: u64 = 64 << 20;
/// Recipients of one message: RFC 5321 4.5.3.1.8 asks for 100 at least.
pub const RECIPIENTS_MAX: usize = 100;
/// Commands that are wrong, and recipients that are unknown, in one connection: then it is closed.
pub const ERRORS_MAX: u32 = 20;
/// Messages over one connection: then it is closed, so that others get its place.
pub const MESSAGES_MAX: u32 = 1000;
/// `Received` fields of a message: more of them is a loop (RFC 5321 6.3 says 100 or more; others stop at 50).
pub const RECEIVED_MAX: usize = 50;
/// The fields of a message together, bytes.
pub const FIELDS_BYTES_MAX: usize = 256 << 10;

/// What a message, and what one of its recipients, is called in notices, bytes as they come (RFC 3461 4.4, 4.2).
pub const ENVID_BYTES_MAX: usize = 100;
pub const ORCPT_BYTES_MAX: usize = 500;

/// Local part and whole address, bytes (RFC 5321 4.5.3.1).
pub const LOCAL_BYTES_MAX: usize = 64;
pub const ADDRESS_BYTES_MAX: usize = 254;
/// The name that a client gives itself.
pub const HELLO_BYTES_MAX: usize = 255;

/// A password, bytes: more is not hashed.
pub const PASSWORD_BYTES_MAX: usize = 256;
/// Addresses that one alias leads to, and aliases in a row.
pub const ALIAS_TARGETS_MAX: usize = 100;
pub const ALIAS_DEPTH_MAX: usize = 8;
/// An answer about an address that is so old is still good: who has the mailbox changes rarely, and mail is taken in
/// also where no majority of the accounts' group can be heard.
pub const ACCOUNT_STALE: Duration = Duration::from_secs(3600);

/// Passwords that are compared at a time: each takes 19 MiB and a core.
pub const VERIFYING_MAX: usize = 2;
/// A password that was right is known again without hashing for so long, unless its account was changed.
pub const VERIFIED_TIME: Duration = Duration::from_secs(600);
/// So many of them; then all are forgotten.
pub const VERIFIED_MAX: usize = 10_000;
/// A session goes on for so long before its account is looked at again.
pub const LOGIN_GOOD: Duration = Duration::from_secs(1);
/// Failed logins are counted for so long from the first one.
pub const GUESS_TIME: Duration = Duration::from_secs(900);
/// Failed logins of one account, and from one network (/24, or /48 of IPv6), in that time: then all are refused.
pub const GUESSES_OF_ACCOUNT_MAX: i64 = 20;
pub const GUESSES_OF_NETWORK_MAX: i64 = 100;
/// A count that is so old still says whether to refuse.
pub const GUESS_STALE: Duration = Duration::from_secs(2);
/// After a failed login its client waits.
pub const GUESS_PAUSE: Duration = Duration::from_millis(500);
/// Failed logins in one connection: then it is closed.
pub const LOGINS_MAX: u32 = 3;

/// A session of POP3 waits so long for the one before it to leave the mailbox: most are over sooner, and nobody's client gives up.
pub const TURN_WAIT_MAX: Duration = Duration::from_secs(3);
/// Messages of a mailbox that one POP3 session shows: the oldest ones.
pub const LISTED_MAX: usize = 100_000;
/// A session that reads in order has so many messages on their way at most, of so many bytes at most each; all sessions of a clone so
/// many together: 8 MiB.
pub const AHEAD_MAX: usize = 4;
pub const AHEAD_BYTES_MAX: u64 = 32 << 10;
pub const AHEAD_OF_ALL: usize = 256;
/// Objects of one answer when a mailbox is listed.
pub const LIST_PAGE: usize = 1000;
/// Deletions under way at a time at the end of a POP3 session.
pub const DELETES_AT_A_TIME: usize = 16;

/// Bytes of messages that are being received, over all connections of a clone: then more are told to come later.
pub const RECEIVING_BYTES_MAX: usize = 256 << 20;
/// So much of it one client may have whatever others have: the largest message (63 MiB) and what belongs to it. More, as long as half of
/// all is free.
pub const RECEIVING_OF_ONE: usize = RECEIVING_BYTES_MAX / 4;
/// Messages that a clone stores at a time, each at all its recipients.
pub const STORING_MAX: usize = 64;
/// Bytes that are read from a connection at a time.
pub const READ_BYTES: usize = 16 << 10;
/// A client says nothing for so long: RFC 5321 4.5.3.2.7 asks for 5 minutes of SMTP, RFC 1939 for 10 of POP3.
pub const SMTP_SILENCE_MAX: Duration = Duration::from_secs(300);
pub const POP_SILENCE_MAX: Duration = Duration::from_secs(600);
/// A message that takes longer from `DATA` to its end comes too slowly.
pub const RECEIVE_TIME_MAX: Duration = Duration::from_secs(600);
/// A DNS server has so long for an answer, and all of them are asked so often.
pub const DNS_ANSWER_TIME: Duration = Duration::from_secs(2);
pub const DNS_TRIES: u32 = 2;
/// Servers of /etc/resolv.conf that are asked: as many as the C library takes.
pub const DNS_SERVERS_MAX: usize = 3;
/// An answer by datagram: what passes through most networks in one piece.
pub const DNS_DATAGRAM_BYTES: usize = 1232;
/// Records of one answer.
pub const DNS_RECORDS_MAX: usize = 64;
/// Answers that are remembered; then all are forgotten. And for how long at most, and where there was nothing.
pub const DNS_KNOWN_MAX: usize = 10_000;
pub const DNS_TTL_MAX: Duration = Duration::from_secs(3600);
pub const DNS_NOTHING_TIME: Duration = Duration::from_secs(60);

/// Checks of one message take so long at most: its sender waits for the answer.
pub const CHECK_TIME_MAX: Duration = Duration::from_secs(10);
/// Messages that a clone checks at a time; others wait, and go unchecked when their time is over.
pub const CHECKING_MAX: usize = 64;
/// What the checks write before a message, bytes: with all else it fits into `OWN_FIELDS_BYTES_MAX`.
pub const RESULTS_BYTES_MAX: usize = 1900;
/// Terms of an SPF record that ask something, questions that find nothing, names of one answer (RFC 7208 4.6.4).
pub const SPF_LOOKUPS_MAX: u32 = 10;
pub const SPF_VOIDS_MAX: u32 = 2;
pub const SPF_NAMES_MAX: usize = 10;
/// Terms of an SPF record.
pub const SPF_TERMS_MAX: usize = 512;
/// Signatures of a message that are looked at: each costs a key, and a hash of all of it.
pub const DKIM_SIGNATURES_MAX: usize = 5;
/// Tags of a signature or key, and fields that are signed.
/// Servers in a chain of ARC: what RFC 8617 wants to be borne, and no more.
pub const ARC_SETS_MAX: usize = 50;
pub const DKIM_TAGS_MAX: usize = 64;
pub const DKIM_FIELDS_MAX: usize = 256;
/// Last labels of a name that are looked up on the way to its owner (DMARCbis).
pub const DMARC_LABELS_MAX: usize = 7;

/// A client that takes nothing for so long does not read.
pub const WRITE_TIME_MAX: Duration = Duration::from_secs(60);
/// A handshake of TLS.
pub const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(20);

const _: () = assert!((MESSAGE_MIB_MAX << 20) as u64 <= CHUNK_BYTES_MAX, "a whole message may come as one chunk");
const _: () = assert!(FIELDS_BYTES_MAX < 1 << 20, "fields are a part of a message");
const _: () = assert!(OWN_FIELDS_BYTES_MAX < 1 << 20 && MESSAGE_MIB_MAX < 64, "our fields fit before any message");
