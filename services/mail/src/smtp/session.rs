//! One connection of SMTP or LMTP. What a command needs from elsewhere (who has a mailbox, whether a message is
//! stored) is asked by an output, and nothing more is read before its answer is there; so replies come in the order
//! of commands, also of those that were sent ahead.

use bytes::Bytes;

use super::body::{Body, Text, Unfit};
use super::command::{self, Command, Hello, Reply, Report, Wishes};
use crate::address::Address;
use crate::limits::*;
use crate::lines::{Line, Lines};

/// How a door is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setting {
    /// The name by which this server speaks.
    pub host: String,
    pub is_lmtp: bool,
    /// There is a certificate, and TLS has not begun.
    pub offers_tls: bool,
    /// TLS has begun with the connection.
    pub is_tls: bool,
    /// Largest message.
    pub bytes_max: usize,
}

pub enum Input<'a> {
    Bytes(&'a [u8]),
    /// The answer to [`Output::Ask`].
    Known(Recipient),
    /// The answer to [`Output::Deliver`], for each recipient in order.
    Delivered(Vec<Delivered>),
    /// TLS has begun.
    Secured,
    /// This clone is to end.
    Goodbye,
    /// Nothing came for too long.
    Silence,
    /// So many messages are coming in at once that there is no memory for this one.
    NoRoom,
}

#[derive(Debug)]
pub enum Output {
    Say(Vec<u8>),
    /// Who has this mailbox?
    Ask(Address),
    /// Store the message.
    Deliver(Box<Envelope>),
    /// Begin TLS, when what was said before has been sent.
    StartTls,
    Close,
}

/// What is known of a recipient.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Recipient {
    /// These mailboxes get what is sent there.
    Here(Vec<String>),
    /// There is nobody of this name.
    Unknown,
    /// It is not a place of ours.
    Elsewhere,
    Disabled,
    Full,
    /// Nobody could say.
    Later,
}

/// What became of a message for one recipient.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delivered {
    Stored,
    /// Not yet, or not known to be: to be sent again.
    Later,
    /// Not yet: no disk has room for it.
    Full,
    /// It will never be taken: it goes round and round.
    Loop,
    /// Nor will this: it is nearly all fields.
    Unfit,
    /// Nor this: the owner of its sender's domain says that it is not from there, and is to be refused.
    Forged,
}

/// A message and whom it is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// None: a notice, which nobody is to answer.
    pub from: Option<Address>,
    pub to: Vec<Target>,
    pub message: Bytes,
    /// What its client calls itself.
    pub hello: String,
    /// `ESMTPS` and its like, RFC 3848.
    pub protocol: &'static str,
    /// What notices are to call it.
    pub envid: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// As its client named it.
    pub address: Address,
    pub mailboxes: Vec<String>,
    /// What its sender wants to be told.
    pub report: Report,
}

#[derive(Debug)]
pub struct Session {
    setting: Setting,
    lines: Lines,
    state: State,
    hello: Option<(Hello, String)>,
    mail: Option<Mail>,
    errors: u32,
    messages: u32,
    leaves: bool,
}

#[derive(Debug)]
enum State {
    Command,
    Text(Text),
    /// So many bytes are to come; none of them is kept if it is not to be.
    Chunk {
        left: u64,
        last: bool,
        kept: bool,
    },
    Asks(Address, Report),
    Delivers,
    Tls,
    Closed,
}

/// A message under way.
#[derive(Debug)]
struct Mail {
    from: Option<Address>,
    wishes: Wishes,
    to: Vec<Target>,
    body: Body,
    /// Pieces have come, so no more recipients and no `DATA`.
    in_pieces: bool,
}

impl Session {
    pub fn new(setting: Setting, out: &mut Vec<Output>) -> Self {
        let protocol = if setting.is_lmtp { "LMTP" } else { "ESMTP" };
        out.push(Output::Say(format!("220 {} {protocol} Coppice\r\n", setting.host).into_bytes()));
        Self {
            setting,
            lines: Lines::default(),
            state: State::Command,
            hello: None,
            mail: None,
            errors: 0,
            messages: 0,
            leaves: false,
        }
    }

    /// Bytes that it holds of a message.
    pub fn held(&self) -> usize {
        self.mail.as_ref().map_or(0, |mail| mail.body.held())
    }

    /// Whether a message is coming in.
    pub fn is_receiving(&self) -> bool {
        matches!(self.state, State::Text(_) | State::Chunk { .. })
            || self.mail.as_ref().is_some_and(|mail| mail.in_pieces)
    }

    pub fn handle(&mut self, input: Input<'_>, out: &mut Vec<Output>) {
        match input {
            // Nobody may say anything between a STARTTLS and its handshake that would be heard after it.
            Input::Bytes(bytes) if !matches!(self.state, State::Tls | State::Closed) => self.lines.push(bytes),
            Input::Bytes(_) => (),
            Input::Known(recipient) => self.is_known(recipient, out),
            Input::Delivered(each) => self.is_delivered(&each, out),
            Input::Secured => self.is_secured(),
            Input::Goodbye => self.leaves = true,
            Input::Silence => self.close(&Reply::new(421, "4.4.2", "nothing came for too long"), out),
            Input::NoRoom => self.close(&Reply::new(421, "4.3.1", "too much is coming in: come again"), out),
        }
        while self.step(out) {}
        let is_idle = matches!(self.state, State::Command) && self.mail.is_none();
        if self.leaves && is_idle {
            self.close(&Reply::new(421, "4.3.2", "this server is about to stop: come again"), out);
        }
    }

    /// Does what can be done with the bytes that are there. False: nothing more.
    fn step(&mut self, out: &mut Vec<Output>) -> bool {
        match &mut self.state {
            State::Command => match self.lines.next(COMMAND_BYTES_MAX) {
                Line::Partial => false,
                Line::Whole(line) => {
                    self.asked(&line, out);
                    true
                }
                Line::TooLong => {
                    self.refuse(&Reply::new(500, "5.5.6", "the line is too long"), out);
                    true
                }
                Line::Bare => {
                    self.close(&Reply::new(521, "5.5.2", "lines end with CR LF here"), out);
                    false
                }
            },
            State::Text(text) => {
                let Some(mail) = &mut self.mail else { unreachable!("text belongs to a message") };
                let (used, ended) = text.take(self.lines.rest(), &mut mail.body);
                self.lines.skip(used);
                if ended {
                    self.is_whole(out);
                }
                ended
            }
            State::Chunk { left, last, kept } => {
                let rest = self.lines.rest();
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                if *kept && let Some(mail) = &mut self.mail {
                    mail.body.push(&rest[..taken]);
                }
                *left -= taken as u64;
                let (left, last, kept) = (*left, *last, *kept);
                self.lines.skip(taken);
                if left > 0 {
                    return false;
                }
                self.state = State::Command;
                match (kept, last) {
                    (false, _) => (),
                    (true, false) => self.say(&Reply::new(250, "2.0.0", "go on"), out),
                    (true, true) => self.is_whole(out),
                }
                true
            }
            State::Asks(..) | State::Delivers | State::Tls | State::Closed => false,
        }
    }

    fn asked(&mut self, line: &[u8], out: &mut Vec<Output>) {
        if command::is_web(line) {
            return self.close(&Reply::new(521, "5.5.1", "this is a mail server"), out);
        }
        let utf8 = self.mail.as_ref().is_some_and(|mail| mail.wishes.utf8);
        let command = match command::parse(line, utf8) {
            Ok(command) => command,
            Err(reply) => return self.refuse(&reply, out),
        };
        match command {
            Command::Hello { kind, name } => self.greeted(kind, name, out),
            Command::Mail { from, wishes } => self.begins(from, wishes, out),
            Command::Recipient { to, report } => self.for_whom(to, report, out),
            Command::Data => self.data(out),
            Command::Chunk { bytes, last } => self.chunk(bytes, last, out),
            Command::Reset => {
                self.mail = None;
                self.say(&Reply::new(250, "2.0.0", "forgotten"), out);
            }
            Command::Noop => self.say(&Reply::new(250, "2.0.0", "done"), out),
            Command::Quit => self.close(&Reply::new(221, "2.0.0", "goodbye"), out),
            Command::Verify => self.say(&Reply::new(252, "2.5.1", "send some mail, and see"), out),
            Command::Help => self.say(&Reply::new(214, "2.0.0", "RFC 5321 says it all"), out),
            Command::StartTls => self.start_tls(out),
            Command::Auth => {
                self.refuse(&Reply::new(502, "5.5.1", "nobody logs in here: mail to others is not taken"), out);
            }
        }
    }

    fn greeted(&mut self, kind: Hello, name: String, out: &mut Vec<Output>) {
        if (kind == Hello::Local) != self.setting.is_lmtp {
            let right = if self.setting.is_lmtp { "LHLO" } else { "EHLO" };
            return self.refuse(&Reply::new(500, "5.5.1", format!("it is {right} at this door")), out);
        }
        self.mail = None;
        self.hello = Some((kind, name));
        if kind == Hello::Plain {
            return out.push(Output::Say(format!("250 {}\r\n", self.setting.host).into_bytes()));
        }
        let size = format!("SIZE {}", self.setting.bytes_max);
        let mut lines = vec![
            self.setting.host.as_str(),
            "PIPELINING",
            &size,
            "8BITMIME",
            "SMTPUTF8",
            "CHUNKING",
            "ENHANCEDSTATUSCODES",
            "DSN",
        ];
        if self.setting.offers_tls {
            lines.push("STARTTLS");
        }
        let last = lines.len() - 1;
        let text: String = lines
            .iter()
            .enumerate()
            .map(|(at, line)| format!("250{}{line}\r\n", if at < last { "-" } else { " " }))
            .collect();
        out.push(Output::Say(text.into_bytes()));
    }

    fn begins(&mut self, from: Option<Address>, wishes: Wishes, out: &mut Vec<Output>) {
        let reply = if self.hello.is_none() {
            Reply::new(503, "5.5.1", "say who you are first")
        } else if self.mail.is_some() {
            Reply::new(503, "5.5.1", "a message is under way")
        } else if wishes.bytes > self.setting.bytes_max as u64 {
            self.too_large()
        } else if self.messages >= MESSAGES_MAX {
            return self.close(&Reply::new(421, "4.7.0", "so many messages are enough for one connection"), out);
        } else {
            self.mail =
                Some(Mail { from, wishes, to: Vec::new(), body: Body::new(self.setting.bytes_max), in_pieces: false });
            return self.say(&Reply::new(250, "2.1.0", "whom for?"), out);
        };
        self.refuse(&reply, out);
    }

    fn for_whom(&mut self, address: Address, report: Report, out: &mut Vec<Output>) {
        match &self.mail {
            None => self.refuse(&Reply::new(503, "5.5.1", "MAIL comes first"), out),
            Some(mail) if mail.in_pieces => self.refuse(&Reply::new(503, "5.5.1", "the message has begun"), out),
            Some(mail) if mail.to.len() >= RECIPIENTS_MAX => {
                self.say(&Reply::new(452, "4.5.3", "so many recipients are enough: send it again to the others"), out);
            }
            Some(_) => {
                self.state = State::Asks(address.clone(), report);
                out.push(Output::Ask(address));
            }
        }
    }

    fn is_known(&mut self, recipient: Recipient, out: &mut Vec<Output>) {
        let State::Asks(address, report) = std::mem::replace(&mut self.state, State::Command) else {
            unreachable!("nobody asked for a recipient")
        };
        let no = |code, status, text: &str| Reply::new(code, status, format!("{address}: {text}"));
        let reply = match recipient {
            Recipient::Here(mailboxes) => {
                let Some(mail) = &mut self.mail else { unreachable!("a recipient belongs to a message") };
                mail.to.push(Target { address: address.clone(), mailboxes, report });
                return self.say(&no(250, "2.1.5", "is here"), out);
            }
            Recipient::Unknown => no(550, "5.1.1", "there is nobody of this name"),
            Recipient::Elsewhere => no(550, "5.7.1", "mail is not passed on from here"),
            Recipient::Disabled => no(550, "5.2.1", "gets no mail"),
            Recipient::Full => return self.say(&no(452, "4.2.2", "the mailbox is full"), out),
            Recipient::Later => return self.say(&no(451, "4.3.0", "cannot be looked up now"), out),
        };
        self.refuse(&reply, out);
    }

    /// A message may come now, or why not.
    fn ready(&self) -> Option<Reply> {
        match &self.mail {
            None => Some(Reply::new(503, "5.5.1", "MAIL comes first")),
            Some(mail) if mail.to.is_empty() => Some(Reply::new(554, "5.5.1", "there are no recipients")),
            Some(_) => None,
        }
    }

    fn data(&mut self, out: &mut Vec<Output>) {
        if let Some(reply) = self.ready() {
            return self.refuse(&reply, out);
        }
        if self.mail.as_ref().is_some_and(|mail| mail.in_pieces) {
            return self.refuse(&Reply::new(503, "5.5.1", "the message has begun with BDAT"), out);
        }
        // Nobody knows yet that it may come: who sends it all the same speaks for somebody who does not listen.
        if !self.lines.is_empty() {
            return self.close(&Reply::new(554, "5.5.0", "wait for the answer to DATA"), out);
        }
        self.state = State::Text(Text::default());
        out.push(Output::Say(b"354 go on, and end with a dot\r\n".to_vec()));
    }

    fn chunk(&mut self, bytes: u64, last: bool, out: &mut Vec<Output>) {
        if bytes > CHUNK_BYTES_MAX {
            return self.close(&self.too_large(), out);
        }
        let refusal = self.ready();
        let kept = refusal.is_none();
        if let Some(reply) = refusal {
            // The piece comes all the same.
            self.refuse(&reply, out);
        }
        if let Some(mail) = &mut self.mail
            && kept
        {
            mail.in_pieces = true;
        }
        if !matches!(self.state, State::Closed) {
            self.state = State::Chunk { left: bytes, last, kept };
        }
    }

    fn too_large(&self) -> Reply {
        Reply::new(552, "5.3.4", format!("{} bytes are the most", self.setting.bytes_max))
    }

    fn is_whole(&mut self, out: &mut Vec<Output>) {
        self.state = State::Command;
        let Some(mail) = self.mail.take() else { unreachable!("what is whole is a message") };
        self.messages += 1;
        let (in_pieces, to) = (mail.in_pieces, mail.to);
        let message = if in_pieces { mail.body.into_checked() } else { mail.body.into_message() };
        match message {
            Ok(message) => {
                let (kind, hello) = self.hello.clone().expect("there was a greeting before the message");
                let protocol = protocol(kind, self.setting.is_tls, mail.wishes.utf8);
                let counted = to.clone();
                self.mail = None;
                self.state = State::Delivers;
                out.push(Output::Deliver(Box::new(Envelope {
                    from: mail.from,
                    to: counted,
                    message: message.into(),
                    hello,
                    protocol,
                    envid: mail.wishes.envid,
                })));
            }
            Err(unfit) => {
                let reply = match unfit {
                    Unfit::Bare => Reply::new(550, "5.6.0", "a CR or LF stands alone in it: lines end with CR LF"),
                    Unfit::Nul => Reply::new(550, "5.6.0", "it has a NUL in it"),
                    Unfit::TooLarge => self.too_large(),
                };
                self.answered(&vec![reply; if self.setting.is_lmtp { to.len() } else { 1 }], out);
            }
        }
    }

    fn is_delivered(&mut self, each: &[Delivered], out: &mut Vec<Output>) {
        assert!(matches!(self.state, State::Delivers), "an answer to a message that was handed on");
        self.state = State::Command;
        let reply = |delivered: Delivered| match delivered {
            Delivered::Stored => Reply::new(250, "2.0.0", "it is stored"),
            Delivered::Later => Reply::new(451, "4.3.0", "it is not known to be stored: send it again"),
            Delivered::Full => Reply::new(452, "4.3.1", "the disks here are full: send it again later"),
            Delivered::Loop => Reply::new(554, "5.4.6", "it has come round too often"),
            Delivered::Unfit => Reply::new(554, "5.6.0", "it has too many fields"),
            Delivered::Forged => Reply::new(550, "5.7.26", "the domain of its sender wants it refused (DMARC)"),
        };
        if self.setting.is_lmtp {
            let replies: Vec<Reply> = each.iter().copied().map(reply).collect();
            return self.answered(&replies, out);
        }
        // One answer for all: that nothing more is to be done for any of them, or else all are sent again, which
        // stores it once.
        let worst = [Delivered::Loop, Delivered::Unfit, Delivered::Forged, Delivered::Full, Delivered::Later]
            .into_iter()
            .find(|worst| each.contains(worst));
        self.answered(&[reply(worst.unwrap_or(Delivered::Stored))], out);
    }

    fn answered(&mut self, replies: &[Reply], out: &mut Vec<Output>) {
        let text: String = replies.iter().map(Reply::line).collect();
        out.push(Output::Say(text.into_bytes()));
    }

    fn start_tls(&mut self, out: &mut Vec<Output>) {
        if !self.setting.offers_tls {
            let text = if self.setting.is_tls { "TLS has begun" } else { "there is no certificate" };
            return self.refuse(&Reply::new(502, "5.5.1", text), out);
        }
        self.say(&Reply::new(220, "2.0.0", "begin TLS"), out);
        // What came behind it was said by nobody that can be trusted.
        self.lines.clear();
        self.state = State::Tls;
        out.push(Output::StartTls);
    }

    fn is_secured(&mut self) {
        assert!(matches!(self.state, State::Tls), "TLS begins where it was asked for");
        (self.setting.offers_tls, self.setting.is_tls) = (false, true);
        (self.hello, self.mail, self.state) = (None, None, State::Command);
    }

    fn say(&mut self, reply: &Reply, out: &mut Vec<Output>) {
        out.push(Output::Say(reply.line().into_bytes()));
    }

    /// Says that it was wrong; when that was too often, ends.
    fn refuse(&mut self, reply: &Reply, out: &mut Vec<Output>) {
        self.say(reply, out);
        self.errors += 1;
        if self.errors >= ERRORS_MAX {
            self.close(&Reply::new(421, "4.7.0", "so many mistakes are enough"), out);
        }
    }

    fn close(&mut self, reply: &Reply, out: &mut Vec<Output>) {
        if matches!(self.state, State::Closed) {
            return;
        }
        self.say(reply, out);
        self.mail = None;
        self.lines.clear();
        self.state = State::Closed;
        out.push(Output::Close);
    }
}

fn protocol(hello: Hello, is_tls: bool, utf8: bool) -> &'static str {
    match (hello, is_tls, utf8) {
        (Hello::Plain, false, _) => "SMTP",
        (Hello::Plain, true, _) | (Hello::Extended, true, false) => "ESMTPS",
        (Hello::Extended, false, false) => "ESMTP",
        (Hello::Extended, false, true) => "UTF8SMTP",
        (Hello::Extended, true, true) => "UTF8SMTPS",
        (Hello::Local, false, false) => "LMTP",
        (Hello::Local, true, false) => "LMTPS",
        (Hello::Local, false, true) => "UTF8LMTP",
        (Hello::Local, true, true) => "UTF8LMTPS",
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
