//! Clients played to the machine.

use proptest::strategy::Strategy;

use super::*;

const MESSAGE: &[u8] = b"Subject: x\r\n\r\n.one\r\ntwo\r\nthree\r\n";

fn id(byte: u8) -> ObjectId {
    ObjectId([byte; 16])
}

struct Play {
    session: Session,
    said: String,
    deleted: Vec<ObjectId>,
    fails: usize,
    /// What is left of the message that is fetched, and whether its last bytes cannot be had.
    fetched: &'static [u8],
    breaks: bool,
    is_closed: bool,
    tls: usize,
}

impl Play {
    fn new(offers_tls: bool, takes_passwords: bool) -> Self {
        let mut out = Vec::new();
        let session = Session::new(Setting { host: "pop.example".into(), offers_tls, takes_passwords }, &mut out);
        let mut play = Self {
            session,
            said: String::new(),
            deleted: vec![],
            fails: 0,
            fetched: b"",
            breaks: false,
            is_closed: false,
            tls: 0,
        };
        play.take(out);
        play.said.clear();
        play
    }

    fn input(&mut self, input: Input<'_>) {
        let mut out = Vec::new();
        self.session.handle(input, &mut out);
        self.take(out);
    }

    /// What is said to these bytes.
    fn send(&mut self, bytes: &str) -> String {
        self.input(Input::Bytes(bytes.as_bytes()));
        std::mem::take(&mut self.said)
    }

    fn take(&mut self, out: Vec<Output>) {
        for output in out {
            match output {
                Output::Say(bytes) => self.said += std::str::from_utf8(&bytes).unwrap(),
                Output::LogIn { user, password } => {
                    let entry = |(byte, bytes)| Entry { id: id(byte), bytes };
                    let result = match (user.as_str(), password.as_str()) {
                        ("ann", "a secret") => Ok([(1, 32), (2, 40), (3, 50), (4, 60)].map(entry).to_vec()),
                        ("later", _) => Err(Refused::Later),
                        ("often", _) => Err(Refused::TooOften),
                        _ => Err(Refused::Wrong),
                    };
                    self.input(Input::LoggedIn(result));
                }
                Output::Fetch(which) => {
                    self.fetched = match which.0[0] {
                        1 => MESSAGE,
                        2 => b"no end",
                        _ => b"",
                    };
                    self.input(Input::Opened(match which.0[0] {
                        1 | 2 => Ok(self.fetched.len() as u64),
                        3 => Err(NotOpened::Gone),
                        _ => Err(NotOpened::Later),
                    }));
                }
                Output::More => {
                    let (piece, rest) = self.fetched.split_at(self.fetched.len().min(5));
                    self.fetched = rest;
                    let piece = if self.breaks && rest.is_empty() { Err(Broken) } else { Ok(Some(piece)) };
                    let piece = piece.map(|piece| piece.filter(|piece| !piece.is_empty()).map(Bytes::from_static));
                    self.input(Input::Piece(piece));
                }
                Output::Delete(ids) => {
                    self.deleted = ids;
                    self.input(Input::Deleted { failed: self.fails });
                }
                Output::StartTls => self.tls += 1,
                Output::Close => self.is_closed = true,
            }
        }
    }
}

fn opened() -> Play {
    let mut play = Play::new(false, true);
    assert_eq!(play.send("USER ann\r\nPASS a secret\r\n"), "+OK and the password?\r\n+OK 4 messages\r\n");
    play
}

/// The whole of a message at once, as it is to go out.
fn sent(message: &[u8], top: Option<u64>) -> Vec<u8> {
    let (mut out, mut in_text, mut left) = (Vec::new(), false, top.unwrap_or(u64::MAX));
    for line in message.split_inclusive(|b| *b == b'\n') {
        if in_text {
            if left == 0 {
                break;
            }
            left -= 1;
        }
        in_text |= line == b"\r\n";
        if line[0] == b'.' {
            out.push(b'.');
        }
        out.extend_from_slice(line);
    }
    if !out.is_empty() && !out.ends_with(b"\r\n") {
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b".\r\n");
    out
}

proptest::proptest! {
    #[test]
    fn a_message_goes_out_alike_whatever_pieces_it_comes_in(
        message in proptest::collection::vec(proptest::sample::select(b".a\r\n".to_vec()), 0..60),
        at_once in 1..8usize,
        top in proptest::option::of(0..5u64),
    ) {
        let (mut sending, mut out) = (Sending::new(top), Vec::new());
        for piece in message.chunks(at_once) {
            let (bytes, is_over) = sending.add(piece);
            out.extend(bytes);
            if is_over {
                break;
            }
        }
        out.extend(sending.end());
        proptest::prop_assert_eq!(out, sent(&message, top));
    }
}

#[test]
fn a_message_that_breaks_off_ends_the_connection_and_is_not_taken_for_a_whole_one() {
    let mut play = opened();
    play.breaks = true;
    let said = play.send("RETR 1\r\nNOOP\r\n");
    assert!(said.starts_with("+OK 32 bytes\r\nSubject") && !said.contains("\r\n.\r\n"), "{said}");
    assert!(play.is_closed && !said.contains("-ERR"), "{said}");
}

#[test]
fn a_mailbox_is_listed_read_and_emptied() {
    let mut play = opened();
    let one = "01".repeat(16);
    for (sent, said) in [
        ("STAT\r\n", "+OK 4 182\r\n".to_owned()),
        ("LIST\r\n", "+OK\r\n1 32\r\n2 40\r\n3 50\r\n4 60\r\n.\r\n".to_owned()),
        ("LIST 2\r\n", "+OK 2 40\r\n".to_owned()),
        ("UIDL 1\r\n", format!("+OK 1 {one}\r\n")),
        ("RETR 1\r\n", "+OK 32 bytes\r\nSubject: x\r\n\r\n..one\r\ntwo\r\nthree\r\n.\r\n".to_owned()),
        ("RETR 2\r\n", "+OK 6 bytes\r\nno end\r\n.\r\n".to_owned()),
        ("RETR 3\r\n", "-ERR it was deleted by another session\r\n".to_owned()),
        ("RETR 4\r\n", "-ERR [SYS/TEMP] its nodes are away: come again\r\n".to_owned()),
        ("TOP 1 0\r\n", "+OK 32 bytes\r\nSubject: x\r\n\r\n.\r\n".to_owned()),
        ("top 1 1\r\n", "+OK 32 bytes\r\nSubject: x\r\n\r\n..one\r\n.\r\n".to_owned()),
        ("DELE 1\r\n", "+OK it goes with QUIT\r\n".to_owned()),
        ("DELE 1\r\n", "-ERR there is no such message\r\n".to_owned()),
        ("RETR 1\r\n", "-ERR there is no such message\r\n".to_owned()),
        ("STAT\r\n", "+OK 3 150\r\n".to_owned()),
        ("LIST\r\n", "+OK\r\n2 40\r\n3 50\r\n4 60\r\n.\r\n".to_owned()),
        ("RSET\r\nSTAT\r\nNOOP\r\n", "+OK all stay\r\n+OK 4 182\r\n+OK\r\n".to_owned()),
        ("DELE 2\r\nDELE 4\r\n", "+OK it goes with QUIT\r\n".repeat(2)),
        ("QUIT\r\n", "+OK goodbye\r\n".to_owned()),
    ] {
        assert_eq!(play.send(sent), said, "{sent}");
    }
    assert_eq!((play.deleted, play.is_closed), (vec![id(2), id(4)], true));
}

#[test]
fn nothing_is_deleted_without_quit_and_what_fails_is_told() {
    let mut play = opened();
    play.send("DELE 1\r\n");
    play.input(Input::Goodbye);
    assert!(play.said.starts_with("-ERR [SYS/TEMP]") && play.is_closed && play.deleted.is_empty(), "{}", play.said);
    let mut play = opened();
    play.send("DELE 1\r\n");
    play.input(Input::Revoked);
    assert!(play.said.starts_with("-ERR [AUTH]") && play.is_closed && play.deleted.is_empty(), "{}", play.said);
    let mut play = opened();
    play.fails = 1;
    assert_eq!(play.send("DELE 1\r\nQUIT\r\n").lines().last(), Some("-ERR [SYS/TEMP] 1 messages are not deleted"));
}

#[test]
fn nonsense_is_told_so() {
    let mut play = opened();
    for sent in [
        "LIST 5\r\n",
        "LIST 0\r\n",
        "LIST -1\r\n",
        "LIST +1\r\n",
        "RETR\r\n",
        "RETR 99999999999999999999\r\n",
        "TOP 1\r\n",
        "TOP 1 x\r\n",
        "DELE x\r\n",
        "USER ann\r\n",
        "XYZZY\r\n",
        "\r\n",
        "STLS\r\n",
    ] {
        assert!(play.send(sent).starts_with("-ERR"), "{sent:?}");
    }
    let mut play = Play::new(false, true);
    for sent in [
        "STAT\r\n",
        "RETR 1\r\n",
        "PASS x\r\n",
        "STLS\r\n",
        "AUTH GSSAPI\r\n",
        "AUTH PLAIN !!!\r\n",
        "AUTH PLAIN AGE=\r\n",
    ] {
        assert!(play.send(sent).starts_with("-ERR"), "{sent:?}");
    }
    assert!(!play.is_closed);
    assert!(play.send("GET / HTTP/1.1\r\n").starts_with("-ERR") && play.is_closed);
    let mut play = Play::new(false, true);
    assert!(play.send("USER ann\nPASS x\r\n").starts_with("-ERR") && play.is_closed);
}

#[test]
fn passwords_come_by_sasl_and_not_in_the_open() {
    // "\0ann\0a secret"
    let coded = "AGFubgBhIHNlY3JldA==";
    let mut play = Play::new(false, true);
    assert_eq!(play.send(&format!("AUTH PLAIN {coded}\r\n")), "+OK 4 messages\r\n");
    let mut play = Play::new(false, true);
    assert_eq!(play.send("AUTH PLAIN\r\n"), "+ \r\n");
    assert!(play.send("*\r\n").starts_with("-ERR"));
    assert_eq!(play.send(&format!("AUTH PLAIN\r\n{coded}\r\n")), "+ \r\n+OK 4 messages\r\n");

    let mut play = Play::new(true, false);
    let capabilities = play.send("CAPA\r\n");
    assert!(capabilities.contains("STLS\r\n") && !capabilities.contains("USER") && !capabilities.contains("SASL"));
    for sent in ["USER ann\r\n", "PASS x\r\n", "AUTH PLAIN\r\n"] {
        assert!(play.send(sent).starts_with("-ERR [AUTH] begin TLS"), "{sent}");
    }
    // What came before TLS is not heard behind it.
    assert_eq!(play.send("STLS\r\nUSER ann\r\nPASS a secret\r\n"), "+OK begin TLS\r\n");
    assert_eq!(play.send("USER ann\r\n"), "");
    assert_eq!(play.tls, 1);
    play.input(Input::Secured);
    assert!(play.send("PASS a secret\r\n").starts_with("-ERR USER comes first"));
    let capabilities = play.send("CAPA\r\n");
    assert!(capabilities.contains("SASL PLAIN\r\n") && !capabilities.contains("STLS"), "{capabilities}");
    assert!(play.send("USER ann\r\nPASS a secret\r\n").ends_with("+OK 4 messages\r\n"));
}

#[test]
fn who_guesses_passwords_is_shown_out() {
    let mut play = Play::new(false, true);
    assert!(play.send("USER ann\r\nPASS x\r\n").ends_with("-ERR [AUTH] name or password is wrong\r\n"));
    assert!(play.send("USER later\r\nPASS x\r\n").ends_with("-ERR [SYS/TEMP] the mailbox cannot be opened now\r\n"));
    assert!(play.send("USER often\r\nPASS x\r\n").contains("too many failed logins"));
    assert!(play.is_closed);
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_it_panic(
        pieces in proptest::collection::vec(proptest::prop_oneof![
            proptest::collection::vec(proptest::num::u8::ANY, 0..40),
            proptest::sample::select(vec![
                &b"USER ann\r\n"[..], b"PASS a secret\r\n", b"LIST\r\n", b"RETR 1\r\n", b"RETR 4\r\n", b"TOP 1 1\r\n", b"DELE 1\r\n", b"RSET\r\n",
                b"QUIT\r\n", b"STLS\r\n", b"AUTH PLAIN\r\n", b"AUTH PLAIN =\r\n", b"\r", b"\n",
            ]).prop_map(<[u8]>::to_vec),
        ], 0..40),
        tls in proptest::bool::ANY,
    ) {
        let mut play = Play::new(tls, !tls);
        for piece in &pieces {
            play.input(Input::Bytes(piece));
            if matches!(play.session.state, State::Tls) {
                play.input(Input::Secured);
            }
        }
    }
}
