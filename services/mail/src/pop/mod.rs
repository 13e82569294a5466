//! POP3 (RFC 1939, 2449, 1734 as RFC 5034 has it, 3206) out, as a machine: one connection. It shows what was there at
//! the login, in order; what is marked as deleted goes at `QUIT` and not before. There is no lock on a mailbox: where
//! the cluster is cut in two nobody could promise one, and two sessions do each other no harm, as a deletion is final
//! and a number means a message of its own session. But they take turns at a clone (`store/turns.rs`).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use sdk::ObjectId;

use crate::auth::sasl;
use crate::limits::*;
use crate::lines::{Line, Lines};
use crate::smtp_is_web;

/// How a door is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setting {
    pub host: String,
    /// There is a certificate, and TLS has not begun.
    pub offers_tls: bool,
    /// Passwords may come as things are: TLS has begun, or nobody else can hear.
    pub takes_passwords: bool,
}

pub enum Input<'a> {
    Bytes(&'a [u8]),
    /// The answer to [`Output::LogIn`].
    LoggedIn(Result<Vec<Entry>, Refused>),
    /// The answer to [`Output::Fetch`]: so many bytes are to come, or why not.
    Opened(Result<u64, NotOpened>),
    /// The answer to [`Output::More`]: the next bytes, none if that was all, or there will be no more.
    Piece(Result<Option<Bytes>, Broken>),
    /// The answer to [`Output::Delete`]: so many could not be deleted.
    Deleted {
        failed: usize,
    },
    Secured,
    /// Who is logged in would not be let in any more: the password was changed, or the account disabled or removed.
    Revoked,
    Goodbye,
    Silence,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    Say(Bytes),
    LogIn {
        user: String,
        password: String,
    },
    Fetch(ObjectId),
    /// The next bytes of what is fetched.
    More,
    Delete(Vec<ObjectId>),
    StartTls,
    Close,
}

/// A message of the mailbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    pub id: ObjectId,
    pub bytes: u64,
}

/// Why somebody is not let in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    Wrong,
    TooOften,
    /// Nobody could say.
    Later,
}

/// Why a message cannot be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotOpened {
    /// Somebody deleted it since.
    Gone,
    /// It is where nobody can get at it now.
    Later,
}

/// A message cannot be read to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Broken;

#[derive(Debug)]
pub struct Session {
    setting: Setting,
    lines: Lines,
    state: State,
    logins: u32,
    errors: u32,
    leaves: bool,
}

#[derive(Debug)]
enum State {
    /// Nobody yet, or a name without its password.
    Stranger {
        user: Option<String>,
    },
    /// The answer to a SASL challenge comes next.
    Sasl,
    LogsIn,
    Open(Mailbox),
    Fetches {
        mailbox: Mailbox,
        sending: Sending,
    },
    Deletes,
    Tls,
    Closed,
}

#[derive(Debug, Default)]
struct Mailbox {
    entries: Vec<Entry>,
    /// For each of them.
    deleted: Vec<bool>,
}

impl Mailbox {
    fn left(&self) -> impl Iterator<Item = (usize, &Entry)> {
        self.entries.iter().enumerate().filter(|(at, _)| !self.deleted[*at]).map(|(at, entry)| (at + 1, entry))
    }

    /// By its number, from 1.
    fn entry(&self, number: &str) -> Option<(usize, Entry)> {
        let is_number = (1..=9).contains(&number.len()) && number.bytes().all(|b| b.is_ascii_digit());
        let at = number.parse::<usize>().ok().filter(|_| is_number)?.checked_sub(1)?;
        let entry = self.entries.get(at).filter(|_| !self.deleted[at])?;
        Some((at, *entry))
    }
}

impl Session {
    pub fn new(setting: Setting, out: &mut Vec<Output>) -> Self {
        out.push(Output::Say(format!("+OK {} POP3 Coppice\r\n", setting.host).into()));
        let state = State::Stranger { user: None };
        Self { setting, lines: Lines::default(), state, logins: 0, errors: 0, leaves: false }
    }

    pub fn wants_bytes(&self) -> bool {
        matches!(self.state, State::Stranger { .. } | State::Sasl | State::Open(_))
    }

    pub fn handle(&mut self, input: Input<'_>, out: &mut Vec<Output>) {
        match input {
            Input::Bytes(bytes) if !matches!(self.state, State::Tls | State::Closed) => self.lines.push(bytes),
            Input::Bytes(_) => (),
            Input::LoggedIn(result) => self.is_logged_in(result, out),
            Input::Opened(opened) => self.is_opened(opened, out),
            Input::Piece(piece) => self.goes_on(piece, out),
            Input::Deleted { failed: 0 } => self.close("+OK goodbye", out),
            Input::Deleted { failed } => self.close(&format!("-ERR [SYS/TEMP] {failed} messages are not deleted"), out),
            Input::Secured => {
                assert!(matches!(self.state, State::Tls), "TLS begins where it was asked for");
                (self.setting.offers_tls, self.setting.takes_passwords) = (false, true);
                self.state = State::Stranger { user: None };
            }
            // Nothing is deleted then, and what came with it is not done.
            Input::Revoked => self.close("-ERR [AUTH] the account was changed: log in again", out),
            Input::Goodbye => self.leaves = true,
            // RFC 1939: nothing is deleted then.
            Input::Silence => self.close("-ERR [SYS/TEMP] nothing came for too long", out),
        }
        while self.wants_bytes() {
            match self.lines.next(POP_COMMAND_BYTES_MAX) {
                Line::Partial => break,
                Line::Whole(line) => self.asked(&line, out),
                Line::TooLong => self.wrong("the line is too long", out),
                Line::Bare => self.close("-ERR lines end with CR LF here", out),
            }
        }
        if self.leaves && self.wants_bytes() {
            self.close("-ERR [SYS/TEMP] this server is about to stop: come again", out);
        }
    }

    fn asked(&mut self, line: &[u8], out: &mut Vec<Output>) {
        if smtp_is_web(line) {
            return self.close("-ERR this is a mail server", out);
        }
        let Ok(line) = std::str::from_utf8(line) else { return self.wrong("it is not UTF-8", out) };
        if matches!(self.state, State::Sasl) {
            self.state = State::Stranger { user: None };
            return match line {
                "*" => self.wrong("given up", out),
                _ => self.sasl(line, out),
            };
        }
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let verb = verb.to_ascii_uppercase();
        match (verb.as_str(), &mut self.state) {
            ("CAPA", _) => self.capabilities(out),
            ("QUIT", State::Stranger { .. }) => self.close("+OK goodbye", out),
            ("STLS", State::Stranger { .. }) if self.setting.offers_tls => {
                self.say("+OK begin TLS", out);
                self.lines.clear();
                self.state = State::Tls;
                out.push(Output::StartTls);
            }
            ("USER" | "PASS" | "AUTH", State::Stranger { .. }) if !self.setting.takes_passwords => {
                self.wrong("[AUTH] begin TLS first: STLS", out);
            }
            ("USER", State::Stranger { user }) => {
                // Whether there is somebody of this name is not told.
                *user = Some(rest.to_owned());
                self.say("+OK and the password?", out);
            }
            ("PASS", State::Stranger { user }) => match user.take() {
                // All of the line: a password may have spaces.
                Some(user) => self.log_in(user, rest.to_owned(), out),
                None => self.wrong("USER comes first", out),
            },
            ("AUTH", State::Stranger { .. }) => self.auth(rest, out),
            ("NOOP", State::Open(_)) => self.say("+OK", out),
            ("STAT", State::Open(mailbox)) => {
                let (count, bytes) = mailbox.left().fold((0, 0), |(count, bytes), (_, e)| (count + 1, bytes + e.bytes));
                self.say(&format!("+OK {count} {bytes}"), out);
            }
            ("LIST", State::Open(mailbox)) => {
                let listed = listed(mailbox, rest, |entry| entry.bytes.to_string());
                self.listed(listed, out);
            }
            ("UIDL", State::Open(mailbox)) => {
                let listed = listed(mailbox, rest, |entry| entry.id.to_string());
                self.listed(listed, out);
            }
            ("RETR", State::Open(mailbox)) => {
                let found = mailbox.entry(rest);
                self.fetch(found, None, out);
            }
            ("TOP", State::Open(mailbox)) => {
                let asked = rest.split_once(' ').and_then(|(number, lines)| Some((number, lines.parse::<u64>().ok()?)));
                match asked {
                    Some((number, lines)) => {
                        let found = mailbox.entry(number);
                        self.fetch(found, Some(lines), out);
                    }
                    None => self.wrong("TOP number lines", out),
                }
            }
            ("DELE", State::Open(mailbox)) => match mailbox.entry(rest) {
                Some((at, _)) => {
                    mailbox.deleted[at] = true;
                    self.say("+OK it goes with QUIT", out);
                }
                None => self.wrong("there is no such message", out),
            },
            ("RSET", State::Open(mailbox)) => {
                mailbox.deleted.fill(false);
                self.say("+OK all stay", out);
            }
            ("QUIT", State::Open(mailbox)) => {
                let gone = |(at, entry): (usize, &Entry)| mailbox.deleted[at].then_some(entry.id);
                let ids: Vec<ObjectId> = mailbox.entries.iter().enumerate().filter_map(gone).collect();
                if ids.is_empty() {
                    return self.close("+OK goodbye", out);
                }
                self.state = State::Deletes;
                out.push(Output::Delete(ids));
            }
            ("USER" | "PASS" | "AUTH" | "STLS", State::Open(_)) => self.wrong("you are logged in", out),
            ("STAT" | "LIST" | "UIDL" | "RETR" | "TOP" | "DELE" | "RSET" | "NOOP", _) => {
                self.wrong("log in first", out)
            }
            _ => self.wrong("there is no such command", out),
        }
    }

    fn capabilities(&mut self, out: &mut Vec<Output>) {
        let mut text =
            "+OK\r\nTOP\r\nUIDL\r\nRESP-CODES\r\nAUTH-RESP-CODE\r\nPIPELINING\r\nEXPIRE NEVER\r\n".to_owned();
        if self.setting.offers_tls {
            text += "STLS\r\n";
        }
        if self.setting.takes_passwords {
            text += "USER\r\nSASL PLAIN\r\n";
        }
        text += "IMPLEMENTATION Coppice\r\n.\r\n";
        out.push(Output::Say(text.into()));
    }

    fn auth(&mut self, rest: &str, out: &mut Vec<Output>) {
        let (mechanism, first) = rest.split_once(' ').unwrap_or((rest, ""));
        match (mechanism.to_ascii_uppercase().as_str(), first) {
            ("", _) => out.push(Output::Say("+OK\r\nPLAIN\r\n.\r\n".into())),
            ("PLAIN", "") => {
                self.state = State::Sasl;
                self.say("+ ", out);
            }
            ("PLAIN", first) => self.sasl(first, out),
            _ => self.wrong("PLAIN is what there is", out),
        }
    }

    fn sasl(&mut self, coded: &str, out: &mut Vec<Output>) {
        match STANDARD.decode(coded).ok().and_then(|message| sasl::plain(&message)) {
            Some((user, password)) => self.log_in(user, password, out),
            None => self.wrong("this is no SASL PLAIN", out),
        }
    }

    fn log_in(&mut self, user: String, password: String, out: &mut Vec<Output>) {
        self.state = State::LogsIn;
        out.push(Output::LogIn { user, password });
    }

    fn is_logged_in(&mut self, result: Result<Vec<Entry>, Refused>, out: &mut Vec<Output>) {
        assert!(matches!(self.state, State::LogsIn), "an answer to a login");
        self.state = State::Stranger { user: None };
        match result {
            Ok(entries) => {
                self.say(&format!("+OK {} messages", entries.len()), out);
                self.state = State::Open(Mailbox { deleted: vec![false; entries.len()], entries });
            }
            Err(refused) => {
                self.logins += 1;
                let text = match refused {
                    Refused::Wrong => "-ERR [AUTH] name or password is wrong",
                    Refused::TooOften => "-ERR [SYS/TEMP] too many failed logins: come again later",
                    Refused::Later => "-ERR [SYS/TEMP] the mailbox cannot be opened now",
                };
                if self.logins >= LOGINS_MAX { self.close(text, out) } else { self.say(text, out) }
            }
        }
    }

    fn listed(&mut self, listed: Option<String>, out: &mut Vec<Output>) {
        match listed {
            Some(text) => out.push(Output::Say(text.into())),
            None => self.wrong("there is no such message", out),
        }
    }

    fn fetch(&mut self, found: Option<(usize, Entry)>, top: Option<u64>, out: &mut Vec<Output>) {
        let Some((_, entry)) = found else { return self.wrong("there is no such message", out) };
        let State::Open(mailbox) = &mut self.state else { unreachable!("only who is logged in fetches") };
        self.state = State::Fetches { mailbox: std::mem::take(mailbox), sending: Sending::new(top) };
        out.push(Output::Fetch(entry.id));
    }

    fn is_opened(&mut self, opened: Result<u64, NotOpened>, out: &mut Vec<Output>) {
        let State::Fetches { mailbox, .. } = &mut self.state else { unreachable!("nobody asked for a message") };
        let refusal = match opened {
            Ok(bytes) => {
                self.say(&format!("+OK {bytes} bytes"), out);
                return out.push(Output::More);
            }
            Err(NotOpened::Gone) => "-ERR it was deleted by another session",
            Err(NotOpened::Later) => "-ERR [SYS/TEMP] its nodes are away: come again",
        };
        self.state = State::Open(std::mem::take(mailbox));
        self.say(refusal, out);
    }

    fn goes_on(&mut self, piece: Result<Option<Bytes>, Broken>, out: &mut Vec<Output>) {
        let State::Fetches { mailbox, sending } = &mut self.state else { unreachable!("nobody asked for a message") };
        let (bytes, is_over) = match piece {
            Ok(Some(piece)) => sending.add(&piece),
            Ok(None) => (Vec::new(), true),
            // Whatever is said now would be taken for a part of the message.
            Err(Broken) => {
                self.lines.clear();
                self.state = State::Closed;
                return out.push(Output::Close);
            }
        };
        out.push(Output::Say(bytes.into()));
        if is_over {
            out.push(Output::Say(sending.end().into()));
            self.state = State::Open(std::mem::take(mailbox));
        } else {
            out.push(Output::More);
        }
    }

    fn say(&mut self, text: &str, out: &mut Vec<Output>) {
        out.push(Output::Say(format!("{text}\r\n").into()));
    }

    fn wrong(&mut self, text: &str, out: &mut Vec<Output>) {
        self.say(&format!("-ERR {text}"), out);
        self.errors += 1;
        if self.errors >= ERRORS_MAX {
            self.close("-ERR so many mistakes are enough", out);
        }
    }

    fn close(&mut self, text: &str, out: &mut Vec<Output>) {
        if !matches!(self.state, State::Closed) {
            self.say(text, out);
            self.lines.clear();
            self.state = State::Closed;
            out.push(Output::Close);
        }
    }
}

/// Of one message or of all. None: there is no such message.
fn listed(mailbox: &Mailbox, number: &str, what: impl Fn(&Entry) -> String) -> Option<String> {
    if !number.is_empty() {
        let (at, entry) = mailbox.entry(number)?;
        return Some(format!("+OK {} {}\r\n", at + 1, what(&entry)));
    }
    let lines: String = mailbox.left().map(|(number, entry)| format!("{number} {}\r\n", what(entry))).collect();
    Some(format!("+OK\r\n{lines}.\r\n"))
}

/// A message as it goes out, in pieces of any size: dots doubled, ended, and cut after so many lines of its text.
#[derive(Debug)]
struct Sending {
    /// Lines of the text that may go yet.
    left: u64,
    in_text: bool,
    line: Begun,
    /// The last bytes that went.
    tail: [u8; 2],
}

/// What there is of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Begun {
    Nothing,
    Cr,
    More,
}

impl Sending {
    fn new(top: Option<u64>) -> Self {
        // What has no bytes ends as a line does.
        Self { left: top.unwrap_or(u64::MAX), in_text: false, line: Begun::Nothing, tail: *b"\r\n" }
    }

    /// What goes out for it, and whether nothing more is to.
    fn add(&mut self, piece: &[u8]) -> (Vec<u8>, bool) {
        let mut out = Vec::with_capacity(piece.len() + piece.len() / 64 + 8);
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            if self.line == Begun::Nothing {
                if self.in_text {
                    if self.left == 0 {
                        return (out, true);
                    }
                    self.left -= 1;
                }
                if part[0] == b'.' {
                    out.push(b'.');
                }
            }
            out.extend_from_slice(part);
            self.in_text |= matches!((self.line, part), (Begun::Nothing, b"\r\n") | (Begun::Cr, b"\n"));
            self.line = match (self.line, part) {
                (_, part) if part.ends_with(b"\n") => Begun::Nothing,
                (Begun::Nothing, b"\r") => Begun::Cr,
                _ => Begun::More,
            };
            for byte in &part[part.len().saturating_sub(2)..] {
                self.tail = [self.tail[1], *byte];
            }
        }
        (out, false)
    }

    fn end(&self) -> Vec<u8> {
        if self.tail == *b"\r\n" { b".\r\n".to_vec() } else { b"\r\n.\r\n".to_vec() }
    }
}

#[cfg(test)]
mod tests;
