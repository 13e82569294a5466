//! Commands of SMTP and LMTP, read from a line, and replies.

use crate::address::{self, Address};
use crate::limits::*;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    Hello { kind: Hello, name: String },
    Mail { from: Option<Address>, wishes: Wishes },
    Recipient { to: Address, report: Report },
    Data,
    Chunk { bytes: u64, last: bool },
    Reset,
    Noop,
    Quit,
    Verify,
    Help,
    StartTls,
    Auth,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hello {
    Plain,
    Extended,
    Local,
}

/// What `MAIL` says besides the sender.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Wishes {
    /// As its client counts.
    pub bytes: u64,
    pub utf8: bool,
    /// What notices are to call the message (`ENVID`, RFC 3461), in plain letters. Which part of it they are to have (`RET`) counts where
    /// mail could not be delivered alone, and of that nothing is told from here: it is refused while its client is there.
    pub envid: Option<String>,
}

/// What is to be told of a recipient (RFC 3461). Of failures and of mail that is late there is nothing to tell: what was taken is there.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    pub success: bool,
    /// What its sender called the recipient: a kind, and an address of that kind.
    pub original: Option<String>,
}

/// One reply: a code, the code of RFC 3463, and words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    pub code: u16,
    pub status: &'static str,
    pub text: String,
}

impl Reply {
    pub fn new(code: u16, status: &'static str, text: impl Into<String>) -> Self {
        Self { code, status, text: text.into() }
    }

    pub fn line(&self) -> String {
        // What a client has sent may be in it, and must not end the line.
        let text: String = self.text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        format!("{} {} {text}\r\n", self.code, self.status)
    }
}

fn syntax(text: &str) -> Reply {
    Reply::new(501, "5.5.4", text)
}

/// Whether a client speaks another protocol, and so perhaps lets somebody speak through it.
pub fn is_web(line: &[u8]) -> bool {
    let starts = |word: &[u8]| line.len() >= word.len() && line[..word.len()].eq_ignore_ascii_case(word);
    [&b"GET "[..], b"POST ", b"PUT ", b"HEAD ", b"OPTIONS ", b"CONNECT ", b"DELETE ", b"PATCH ", b"TRACE ", b"Host:"]
        .into_iter()
        .any(starts)
        || line.starts_with(&[0x16, 0x03])
}

/// What a line asks. `utf8`: the message under way may have international addresses.
pub fn parse(line: &[u8], utf8: bool) -> Result<Command, Reply> {
    let text =
        std::str::from_utf8(line).map_err(|_| Reply::new(500, "5.5.2", "this is no command: it is not UTF-8"))?;
    if text.chars().any(|c| c.is_ascii_control()) {
        return Err(Reply::new(500, "5.5.2", "this is no command: it has control characters"));
    }
    let (verb, rest) = text.split_once(' ').unwrap_or((text, ""));
    let rest = rest.trim_matches(' ');
    let alone = |command: Command| if rest.is_empty() { Ok(command) } else { Err(syntax("it takes no parameters")) };
    match verb.to_ascii_uppercase().as_str() {
        "HELO" => hello(Hello::Plain, rest),
        "EHLO" => hello(Hello::Extended, rest),
        "LHLO" => hello(Hello::Local, rest),
        "MAIL" => mail(rest),
        "RCPT" => recipient(rest, utf8),
        "DATA" => alone(Command::Data),
        "BDAT" => chunk(rest),
        "RSET" => alone(Command::Reset),
        "NOOP" => Ok(Command::Noop),
        "QUIT" => alone(Command::Quit),
        "VRFY" => Ok(Command::Verify),
        "HELP" => Ok(Command::Help),
        "STARTTLS" => alone(Command::StartTls),
        "AUTH" => Ok(Command::Auth),
        "EXPN" | "TURN" | "ETRN" | "SEND" | "SOML" | "SAML" => Err(Reply::new(502, "5.5.1", "it is not done here")),
        _ => Err(Reply::new(500, "5.5.2", "there is no such command")),
    }
}

fn hello(kind: Hello, name: &str) -> Result<Command, Reply> {
    let fits = |c: char| c.is_ascii_graphic() || (!c.is_ascii() && c.is_alphanumeric());
    let is_fit = !name.is_empty() && name.len() <= HELLO_BYTES_MAX && name.chars().all(fits);
    // It stands in a field of the message, within parentheses.
    if !is_fit || name.contains(['(', ')', '\\', '"', '<', '>', ';']) {
        return Err(syntax("say who you are: EHLO host.example"));
    }
    Ok(Command::Hello { kind, name: name.to_owned() })
}

/// What follows a word and a colon, whatever the case of the word.
fn after<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let is_it = text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    // Some clients put a space there.
    is_it.then(|| text[word.len()..].trim_start_matches(' '))
}

fn parameters(rest: &str) -> impl Iterator<Item = (String, &str)> {
    rest.split(' ').filter(|word| !word.is_empty()).map(|word| {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        (name.to_ascii_uppercase(), value)
    })
}

fn mail(rest: &str) -> Result<Command, Reply> {
    let wrong = || syntax("MAIL FROM:<address> is how it begins");
    let (from, rest) = address::path(after(rest, "FROM:").ok_or_else(wrong)?)
        .ok_or_else(|| Reply::new(553, "5.1.7", "the sender is no address: <user@host.example>, or <>"))?;
    let (mut wishes, mut has_ret) = (Wishes::default(), false);
    for (name, value) in parameters(rest) {
        if name == "ENVID" && wishes.envid.is_none() {
            let envid = from_xtext(value).filter(|_| (1..=ENVID_BYTES_MAX).contains(&value.len()));
            wishes.envid = Some(envid.ok_or_else(|| syntax("ENVID is wrong"))?);
            continue;
        }
        match (name.as_str(), value.to_ascii_uppercase().as_str()) {
            ("SIZE", size) if size.len() <= 20 && size.bytes().all(|b| b.is_ascii_digit()) && !size.is_empty() => {
                // More than a number holds is too much by itself.
                wishes.bytes = size.parse().unwrap_or(u64::MAX);
            }
            ("BODY", "7BIT" | "8BITMIME") => (),
            ("SMTPUTF8", "") => wishes.utf8 = true,
            ("RET", "FULL" | "HDRS") if !has_ret => has_ret = true,
            ("SIZE" | "BODY" | "SMTPUTF8" | "RET" | "ENVID", _) => return Err(syntax(&format!("{name} is wrong"))),
            _ => return Err(Reply::new(555, "5.5.4", format!("there is no parameter {name}"))),
        }
    }
    if from.as_ref().is_some_and(Address::is_international) && !wishes.utf8 {
        return Err(Reply::new(550, "5.6.7", "an international address needs SMTPUTF8"));
    }
    Ok(Command::Mail { from, wishes })
}

fn recipient(rest: &str, utf8: bool) -> Result<Command, Reply> {
    let wrong = || syntax("RCPT TO:<address> is how it begins");
    let no_address = || Reply::new(553, "5.1.3", "the recipient is no address: <user@host.example>");
    let (to, rest) = address::path(after(rest, "TO:").ok_or_else(wrong)?).ok_or_else(no_address)?;
    let to = to.ok_or_else(no_address)?;
    let (mut report, mut notify) = (Report::default(), None);
    for (name, value) in parameters(rest) {
        match name.as_str() {
            "NOTIFY" if notify.is_none() => {
                notify = Some(value);
                report.success = notifies(value).ok_or_else(|| syntax("NOTIFY is wrong"))?;
            }
            "ORCPT" if report.original.is_none() => {
                report.original = Some(original(value, utf8).ok_or_else(|| syntax("ORCPT is wrong"))?);
            }
            "NOTIFY" | "ORCPT" => return Err(syntax(&format!("{name} stands there twice"))),
            _ => return Err(Reply::new(555, "5.5.4", format!("there is no parameter {name}"))),
        }
    }
    if to.is_international() && !utf8 {
        return Err(Reply::new(553, "5.6.7", "an international address needs SMTPUTF8"));
    }
    if to.is_route() {
        return Err(Reply::new(550, "5.7.1", "mail is not passed on from here"));
    }
    Ok(Command::Recipient { to, report })
}

/// Whether a notice is wanted when it is delivered. None: nobody means that.
fn notifies(value: &str) -> Option<bool> {
    let value = value.to_ascii_uppercase();
    if value == "NEVER" {
        return Some(false);
    }
    let mut seen = Vec::new();
    for word in value.split(',') {
        if !matches!(word, "SUCCESS" | "FAILURE" | "DELAY") || seen.contains(&word) {
            return None;
        }
        seen.push(word);
    }
    Some(seen.contains(&"SUCCESS"))
}

/// A kind of address, and one of that kind: `rfc822;ann@there`.
fn original(value: &str, utf8: bool) -> Option<String> {
    let (kind, address) = value.split_once(';').filter(|_| value.len() <= ORCPT_BYTES_MAX)?;
    let is_atom = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c);
    if kind.is_empty() || !kind.chars().all(is_atom) || address.is_empty() {
        return None;
    }
    // Letters of all kinds, in a code of their own (RFC 6533): it is passed on as it is.
    let is_plain = |c: char| c.is_ascii_graphic() || (utf8 && c.is_alphanumeric());
    let address = match kind.eq_ignore_ascii_case("utf-8") {
        true => address.chars().all(is_plain).then(|| address.to_owned())?,
        false => from_xtext(address)?,
    };
    Some(format!("{kind};{address}"))
}

/// What stands in the code of RFC 3461: printable letters, some of them as `+` and two digits.
fn from_xtext(text: &str) -> Option<String> {
    let (mut plain, mut rest) = (String::new(), text.chars());
    while let Some(letter) = rest.next() {
        let letter = match letter {
            '+' => {
                let mut digit = || rest.next()?.to_digit(16);
                char::from(u8::try_from(digit()? * 16 + digit()?).ok()?)
            }
            '=' => return None,
            _ if letter.is_ascii_graphic() => letter,
            _ => return None,
        };
        // It stands in a field of the notice, and must not end that.
        if !(' '..='~').contains(&letter) {
            return None;
        }
        plain.push(letter);
    }
    Some(plain)
}

fn chunk(rest: &str) -> Result<Command, Reply> {
    let (size, last) = rest.split_once(' ').unwrap_or((rest, ""));
    let last = match last.to_ascii_uppercase().as_str() {
        "" => Some(false),
        "LAST" => Some(true),
        _ => None,
    };
    let is_number = !size.is_empty() && size.bytes().all(|b| b.is_ascii_digit());
    let size = if is_number { Some(size.parse().unwrap_or(u64::MAX)) } else { None };
    match (size, last) {
        (Some(bytes), Some(last)) => Ok(Command::Chunk { bytes, last }),
        _ => Err(syntax("BDAT size, or BDAT size LAST")),
    }
}
