//! Clients of all kinds, played to the machine: what they send, and all that it says and wants.

use super::*;

const MESSAGE_BYTES_MAX: usize = 1_044_480;

fn setting() -> Setting {
    Setting { host: "mx.example".into(), is_lmtp: false, offers_tls: true, is_tls: false, bytes_max: MESSAGE_BYTES_MAX }
}

/// A server whose mailboxes are `ann@here` and `bob@here`, and where delivery ends as is said.
struct Play {
    session: Session,
    said: String,
    stored: Vec<Envelope>,
    ends: Vec<Delivered>,
    is_closed: bool,
    tls: usize,
}

impl Play {
    fn new(setting: Setting) -> Self {
        let mut out = Vec::new();
        let session = Session::new(setting, &mut out);
        let mut play =
            Self { session, said: String::new(), stored: Vec::new(), ends: Vec::new(), is_closed: false, tls: 0 };
        play.take(out);
        play
    }

    fn input(&mut self, input: Input<'_>) {
        let mut out = Vec::new();
        self.session.handle(input, &mut out);
        self.take(out);
    }

    fn send(&mut self, bytes: &[u8]) -> &mut Self {
        self.input(Input::Bytes(bytes));
        self
    }

    fn take(&mut self, out: Vec<Output>) {
        for output in out {
            match output {
                Output::Say(bytes) => self.said += std::str::from_utf8(&bytes).unwrap(),
                Output::Ask(address) => {
                    let known = match address.key().as_str() {
                        key @ ("ann@here" | "bob@here") => Recipient::Here(vec![key.to_owned()]),
                        "full@here" => Recipient::Full,
                        "gone@here" => Recipient::Disabled,
                        "later@here" => Recipient::Later,
                        key if key.ends_with("@here") => Recipient::Unknown,
                        _ => Recipient::Elsewhere,
                    };
                    self.input(Input::Known(known));
                }
                Output::Deliver(envelope) => {
                    let each = envelope.to.iter().enumerate();
                    let ends = each.map(|(at, _)| self.ends.get(at).copied().unwrap_or(Delivered::Stored)).collect();
                    self.stored.push(*envelope);
                    self.input(Input::Delivered(ends));
                }
                Output::StartTls => self.tls += 1,
                Output::Close => self.is_closed = true,
            }
        }
    }

    /// Codes of all replies so far, without the greeting's.
    fn codes(&self) -> Vec<&str> {
        self.said.lines().skip(1).filter(|line| line.as_bytes()[3] == b' ').map(|line| &line[..3]).collect()
    }
}

const BEGIN: &[u8] = b"EHLO me\r\nMAIL FROM:<eve@there>\r\nRCPT TO:<ann@here>\r\nDATA\r\n";

#[track_caller]
fn check(script: &[u8], codes: &[&str]) -> Play {
    let mut play = Play::new(setting());
    play.send(script);
    assert_eq!(play.codes(), codes, "{}", play.said);
    play
}

#[test]
fn a_message_is_taken_and_told_with_who_sent_it() {
    let mut play = check(BEGIN, &["250", "250", "250", "354"]);
    play.send(b"Subject: x\r\n\r\n..dot\r\n.\r\n");
    play.send(b"QUIT\r\n");
    assert_eq!(play.codes()[4..], ["250", "221"]);
    let envelope = &play.stored[0];
    assert_eq!(&envelope.message[..], b"Subject: x\r\n\r\n.dot\r\n");
    assert_eq!(envelope.from.as_ref().unwrap().key(), "eve@there");
    assert_eq!((envelope.hello.as_str(), envelope.protocol, envelope.to.len()), ("me", "ESMTP", 1));
    assert!(play.is_closed);
    for word in ["PIPELINING", "SIZE 1044480", "8BITMIME", "SMTPUTF8", "CHUNKING", "ENHANCEDSTATUSCODES", "DSN"] {
        assert!(play.said.contains(&format!("250-{word}\r\n")), "{word}: {}", play.said);
    }
    assert!(play.said.contains("250 STARTTLS\r\n"), "{}", play.said);
}

#[test]
fn each_byte_alone_is_the_same_as_all_at_once() {
    let mut play = Play::new(setting());
    for byte in [BEGIN, b"a\r\n.\r\nRSET\r\n"].concat() {
        play.send(&[byte]);
    }
    assert_eq!(play.codes(), ["250", "250", "250", "354", "250", "250"]);
    assert_eq!(&play.stored[0].message[..], b"a\r\n");
}

#[test]
fn none_of_eleven_endings_ends_a_message_and_nothing_is_smuggled_behind_it() {
    let endings: [&[u8]; 11] = [
        b"\n.\n",
        b"\r.\r",
        b"\r.\n",
        b"\n.\r",
        b"\n.\r\n",
        b"\r\n.\n",
        b"\r.\r\n",
        b"\r\n.\r",
        b"\r\n\0.\r\n",
        b"\r\n.\0\r\n",
        b"\r\r\n.\r\r\n",
    ];
    for ending in endings {
        let mut play = check(BEGIN, &["250", "250", "250", "354"]);
        play.send(b"one");
        play.send(ending);
        assert_eq!(play.codes().len(), 4, "{ending:?} was taken for an end");
        play.send(b"MAIL FROM:<evil@there>\r\nRCPT TO:<bob@here>\r\nDATA\r\ntwo");
        assert_eq!(play.codes().len(), 4, "{ending:?}: what stands behind it was obeyed");
        play.send(b"\r\n.\r\n");
        assert_eq!((&play.codes()[4..], play.stored.len()), (&["550"][..], 0), "{ending:?}: {}", play.said);
    }
    // In commands nothing but CR LF ends a line, either.
    for bare in [&b"NOOP\nMAIL FROM:<a@b>\r\n"[..], b"NOOP\rQUIT\r\n", b"NOOP\n"] {
        assert!(check(bare, &["521"]).is_closed, "{bare:?}");
    }
}

#[test]
fn who_sends_ahead_what_must_wait_is_cut_off() {
    let play = check(&[BEGIN, b"Subject: x\r\n\r\n.\r\n"].concat(), &["250", "250", "250", "554"]);
    assert!(play.is_closed && play.stored.is_empty());
    // Commands that may be sent ahead are answered in order, those after a message too.
    let mut play = check(BEGIN, &["250", "250", "250", "354"]);
    play.send(b"a\r\n.\r\nMAIL FROM:<>\r\nRCPT TO:<bob@here>\r\nNOOP\r\n");
    assert_eq!(play.codes()[4..], ["250", "250", "250", "250"]);
}

#[test]
fn what_comes_behind_starttls_is_dropped_and_all_begins_anew() {
    let mut play = check(b"EHLO me\r\nSTARTTLS\r\nNOOP\r\nMAIL FROM:<evil@there>\r\n", &["250", "220"]);
    play.send(b"NOOP\r\n");
    assert_eq!(play.tls, 1);
    play.input(Input::Secured);
    assert_eq!(play.codes(), ["250", "220"], "{}", play.said);
    play.send(b"MAIL FROM:<eve@there>\r\nEHLO me\r\nSTARTTLS\r\n");
    assert_eq!(play.codes()[2..], ["503", "250", "502"], "{}", play.said);
    play.send(b"MAIL FROM:<eve@there>\r\nRCPT TO:<ann@here>\r\nBDAT 0 LAST\r\n");
    assert_eq!(play.stored[0].protocol, "ESMTPS");
}

#[test]
fn commands_are_answered_with_the_right_code() {
    for (script, codes) in [
        ("HELO me\r\n", &["250"][..]),
        ("EHLO\r\n", &["501"]),
        ("EHLO a b\r\n", &["501"]),
        ("EHLO (x)\r\n", &["501"]),
        ("LHLO me\r\n", &["500"]),
        ("MAIL FROM:<a@b>\r\n", &["503"]),
        ("EHLO x\r\nRCPT TO:<ann@here>\r\n", &["250", "503"]),
        ("EHLO x\r\nDATA\r\n", &["250", "503"]),
        ("EHLO x\r\nMAIL FROM:<a@b>\r\nDATA\r\n", &["250", "250", "554"]),
        ("EHLO x\r\nMAIL FROM:<a@b>\r\nMAIL FROM:<a@b>\r\n", &["250", "250", "503"]),
        ("EHLO x\r\nMAIL FROM:<a@b> SIZE=1044480\r\n", &["250", "250"]),
        ("EHLO x\r\nMAIL FROM:<a@b> SIZE=1044481\r\n", &["250", "552"]),
        ("EHLO x\r\nMAIL FROM:<a@b> SIZE=99999999999999999999\r\n", &["250", "552"]),
        ("EHLO x\r\nMAIL FROM:<a@b> SIZE=-1\r\n", &["250", "501"]),
        ("EHLO x\r\nMAIL FROM:<a@b> BODY=8BITMIME\r\n", &["250", "250"]),
        ("EHLO x\r\nMAIL FROM:<a@b> RET=hdrs ENVID=a+20b+2Bc\r\n", &["250", "250"]),
        ("EHLO x\r\nMAIL FROM:<a@b> RET=SOME\r\n", &["250", "501"]),
        ("EHLO x\r\nMAIL FROM:<a@b> RET=FULL RET=FULL\r\n", &["250", "501"]),
        ("EHLO x\r\nMAIL FROM:<a@b> ENVID=a ENVID=b\r\n", &["250", "501"]),
        ("EHLO x\r\nMAIL FROM:<a@b> ENVID=\r\nMAIL FROM:<a@b> ENVID=a=b\r\n", &["250", "501", "501"]),
        // A code that is none, and one that would end a field of the notice.
        ("EHLO x\r\nMAIL FROM:<a@b> ENVID=a+2\r\nMAIL FROM:<a@b> ENVID=a+0Db\r\n", &["250", "501", "501"]),
        ("EHLO x\r\nMAIL FROM:<a@b> BODY=BINARYMIME\r\n", &["250", "501"]),
        ("EHLO x\r\nMAIL FROM:<a@b> COLOUR=RED\r\n", &["250", "555"]),
        ("EHLO x\r\nMAIL FROM: <a@b>\r\n", &["250", "250"]),
        ("EHLO x\r\nMAIL FROM:a@b\r\n", &["250", "553"]),
        ("EHLO x\r\nMAIL\r\n", &["250", "501"]),
        ("EHLO x\r\nMAIL FROM:<ä@b>\r\n", &["250", "550"]),
        ("EHLO x\r\nMAIL FROM:<ä@b> SMTPUTF8\r\nRCPT TO:<ö@here>\r\n", &["250", "250", "550"]),
        ("EHLO x\r\nMAIL FROM:<a@b>\r\nRCPT TO:<ö@here>\r\n", &["250", "250", "553"]),
        ("NOOP\r\nNOOP x\r\nRSET\r\nVRFY ann\r\nHELP\r\n", &["250", "250", "250", "252", "214"]),
        ("RSET x\r\nEXPN all\r\nAUTH PLAIN\r\nXYZZY\r\n\r\n", &["501", "502", "502", "500", "500"]),
        ("GET / HTTP/1.1\r\nHost: x\r\n", &["521"]),
        ("Host: x\r\n", &["521"]),
        ("EHLO \u{7}\r\n", &["500"]),
    ] {
        check(script.as_bytes(), codes);
    }
    check(b"\xff\xfe\r\n", &["500"]);
    check(&[&[b'a'; 5000][..], b"\r\nNOOP\r\n"].concat(), &["500", "250"]);
}

#[test]
fn only_who_has_a_mailbox_here_is_taken() {
    let recipients = [
        ("<ann@here>", "250"),
        ("<ANN@HERE>", "250"),
        ("<nobody@here>", "550 5.1.1"),
        ("<ann@there>", "550 5.7.1"),
        ("<ann%there@here>", "550 5.7.1"),
        ("<there!ann@here>", "550 5.7.1"),
        ("<\"ann@there\"@here>", "550 5.7.1"),
        ("<@here:ann@there>", "553 5.1.3"),
        ("<@here,@there:ann@there>", "553 5.1.3"),
        ("<ann@there@here>", "553 5.1.3"),
        ("<ann>", "553 5.1.3"),
        ("<>", "553 5.1.3"),
        ("<ann@[127.0.0.1]>", "550 5.7.1"),
        ("<full@here>", "452 4.2.2"),
        ("<gone@here>", "550 5.2.1"),
        ("<later@here>", "451 4.3.0"),
        ("<ann@here> NOTIFY=SUCCESS,FAILURE ORCPT=rfc822;ann@here", "250"),
        ("<ann@here> NOTIFY=never", "250"),
        ("<ann@here> ORCPT=x400;/C+3Dde/", "250"),
        ("<ann@here> ORCPT=utf-8;\\x{F6}@here NOTIFY=delay", "250"),
        ("<nobody@here> NOTIFY=SUCCESS", "550 5.1.1"),
        ("<ann@there> NOTIFY=SUCCESS", "550 5.7.1"),
        ("<ann@here> NOTIFY=NEVER,SUCCESS", "501 5.5.4"),
        ("<ann@here> NOTIFY=SUCCESS,SUCCESS", "501 5.5.4"),
        ("<ann@here> NOTIFY=", "501 5.5.4"),
        ("<ann@here> NOTIFY", "501 5.5.4"),
        ("<ann@here> NOTIFY=DELAY NOTIFY=DELAY", "501 5.5.4"),
        ("<ann@here> ORCPT=ann@here", "501 5.5.4"),
        ("<ann@here> ORCPT=rfc822;", "501 5.5.4"),
        ("<ann@here> ORCPT=rfc 822;a", "501 5.5.4"),
        ("<ann@here> ORCPT=rfc822;a+0A", "501 5.5.4"),
        ("<ann@here> ORCPT=utf-8;ö@here", "501 5.5.4"),
        ("<ann@here> ORCPT=rfc822;a ORCPT=rfc822;a", "501 5.5.4"),
        ("<ann@here> X=Y", "555"),
    ];
    for (recipient, code) in recipients {
        let mut play = Play::new(setting());
        play.send(b"EHLO x\r\nMAIL FROM:<a@b>\r\n");
        play.said.clear();
        play.send(format!("RCPT TO:{recipient}\r\n").as_bytes());
        assert!(play.said.starts_with(code), "{recipient}: {}", play.said);
    }
}

#[test]
fn what_is_wanted_to_be_told_goes_with_the_message() {
    let begin =
        b"EHLO x\r\nMAIL FROM:<a@b> SMTPUTF8 ENVID=a+20b+2Bc RET=FULL\r\nRCPT TO:<ann@here> notify=failure,success \
        ORCPT=rfc822;Ann+2Bx@old\r\nRCPT TO:<bob@here> ORCPT=utf-8;b\xc3\xb6b@here\r\nBDAT 0 LAST\r\n";
    let play = check(begin, &["250", "250", "250", "250", "250"]);
    let envelope = &play.stored[0];
    assert_eq!(envelope.envid.as_deref(), Some("a b+c"));
    let report = |at: usize| (envelope.to[at].report.success, envelope.to[at].report.original.as_deref());
    assert_eq!((report(0), report(1)), ((true, Some("rfc822;Ann+x@old")), (false, Some("utf-8;böb@here"))));
    let long = |name: &str, bytes: usize| format!("EHLO x\r\nMAIL FROM:<a@b>{name}{}\r\n", "x".repeat(bytes));
    check(long(" ENVID=", ENVID_BYTES_MAX).as_bytes(), &["250", "250"]);
    check(long(" ENVID=", ENVID_BYTES_MAX + 1).as_bytes(), &["250", "501"]);
    check(long("\r\nRCPT TO:<ann@here> ORCPT=rfc822;", 500).as_bytes(), &["250", "250", "501"]);
}

#[test]
fn pieces_are_counted_and_not_read() {
    let begin = b"EHLO x\r\nMAIL FROM:<a@b>\r\nRCPT TO:<ann@here>\r\n";
    let script = [&begin[..], b"BDAT 9\r\na\r\n.\r\nQUIBDAT 4 LAST\r\nT\r\n\nNOOP\r\n"].concat();
    let mut play = check(&script, &["250", "250", "250", "250", "550", "250"]);
    play.send(b"MAIL FROM:<a@b>\r\nRCPT TO:<ann@here>\r\nBDAT 6\r\na\r\n.\r\nBDAT 3 LAST\r\nb\r\nNOOP\r\n");
    assert_eq!(play.codes()[6..], ["250", "250", "250", "250", "250"], "{}", play.said);
    assert_eq!(&play.stored[0].message[..], b"a\r\n.\r\nb\r\n");
    // A piece that nobody wants is passed over, and never obeyed.
    let play = check(b"EHLO x\r\nBDAT 6 LAST\r\nQUIT\r\nNOOP\r\n", &["250", "503", "250"]);
    assert!(!play.is_closed);
    let script = [&begin[..], b"BDAT 3\r\na\r\nDATA\r\nRCPT TO:<bob@here>\r\nBDAT x\r\n"].concat();
    check(&script, &["250", "250", "250", "250", "503", "503", "501"]);
    assert!(check(b"EHLO x\r\nBDAT 18446744073709551615 LAST\r\n", &["250", "552"]).is_closed);
}

#[test]
fn a_message_that_is_too_large_is_refused_at_its_end() {
    let mut play = check(BEGIN, &["250", "250", "250", "354"]);
    for _ in 0..1100 {
        play.send(&[&[b'a'; 998][..], b"\r\n"].concat());
        assert!(play.session.held() <= 2 * MESSAGE_BYTES_MAX);
    }
    assert!(play.session.is_receiving());
    play.send(b".\r\n");
    assert_eq!((play.codes()[4..].to_vec(), play.stored.len()), (vec!["552"], 0));
}

#[test]
fn lmtp_answers_for_each_recipient_and_smtp_once_for_all() {
    let script = |hello: &str| {
        format!("{hello} x\r\nMAIL FROM:<a@b>\r\nRCPT TO:<ann@here>\r\nRCPT TO:<no@here>\r\nRCPT TO:<bob@here>\r\n")
    };
    let ended = |is_lmtp: bool, ends: &[Delivered], data: &[u8]| {
        let mut play = Play::new(Setting { is_lmtp, ..setting() });
        play.ends = ends.to_vec();
        play.send(script(if is_lmtp { "LHLO" } else { "EHLO" }).as_bytes());
        assert_eq!(play.codes(), ["250", "250", "250", "550", "250"], "{}", play.said);
        play.send(b"DATA\r\n").send(data);
        play.codes()[6..].join(" ")
    };
    use Delivered::{Full, Later, Loop, Stored};
    assert_eq!(ended(true, &[Stored, Later], b"a\r\n.\r\n"), "250 451");
    assert_eq!(ended(true, &[], b"a\n\r\n.\r\n"), "550 550");
    assert_eq!(ended(false, &[Stored, Stored], b"a\r\n.\r\n"), "250");
    assert_eq!(ended(false, &[Stored, Later], b"a\r\n.\r\n"), "451");
    assert_eq!(ended(false, &[Later, Full], b"a\r\n.\r\n"), "452");
    assert_eq!(ended(true, &[Full, Stored], b"a\r\n.\r\n"), "452 250");
    assert_eq!(ended(false, &[Loop, Later], b"a\r\n.\r\n"), "554");
    let mut play = Play::new(Setting { is_lmtp: true, ..setting() });
    play.send(b"EHLO x\r\nHELO x\r\n");
    assert_eq!(play.codes(), ["500", "500"]);
}

#[test]
fn who_guesses_or_babbles_is_shown_out() {
    let many = "RCPT TO:<a@here>\r\n".repeat(100);
    let play = check(
        format!("EHLO x\r\nMAIL FROM:<a@b>\r\n{many}").as_bytes(),
        &[&["250", "250"][..], &["550"; 20], &["421"]].concat(),
    );
    assert!(play.is_closed);
    let begin = "EHLO x\r\nMAIL FROM:<a@b>\r\n";
    let play = check(
        format!("{begin}{}", "RCPT TO:<ann@here>\r\n".repeat(101)).as_bytes(),
        &[&["250"; 102][..], &["452"]].concat(),
    );
    assert!(!play.is_closed);
}

#[test]
fn a_server_that_stops_says_so_between_messages() {
    let mut play = check(BEGIN, &["250", "250", "250", "354"]);
    play.input(Input::Goodbye);
    assert_eq!(play.codes().len(), 4);
    play.send(b"a\r\n.\r\n");
    assert_eq!(play.codes()[4..], ["250", "421"], "{}", play.said);
    assert!(play.is_closed && play.stored.len() == 1);
    let mut play = check(b"EHLO x\r\n", &["250"]);
    play.input(Input::Silence);
    assert!(play.is_closed && play.said.ends_with("\r\n") && play.codes() == ["250", "421"]);
    let mut play = check(BEGIN, &["250", "250", "250", "354"]);
    play.input(Input::NoRoom);
    assert!(play.is_closed && play.session.held() == 0 && play.codes()[4..] == ["421"]);
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_it_panic_or_hold_much(
        pieces in proptest::collection::vec(proptest::prelude::prop_oneof![
            proptest::collection::vec(proptest::num::u8::ANY, 0..60),
            proptest::sample::select(vec![
                b"EHLO x\r\n".to_vec(), b"LHLO x\r\n".to_vec(), b"MAIL FROM:<a@b>\r\n".to_vec(), b"RCPT TO:<ann@here>\r\n".to_vec(),
                b"DATA\r\n".to_vec(), b"\r\n.\r\n".to_vec(), b"BDAT 7\r\n".to_vec(), b"BDAT 0 LAST\r\n".to_vec(), b"STARTTLS\r\n".to_vec(),
                b"RSET\r\n".to_vec(), b"\r".to_vec(), b"\n".to_vec(), b".".to_vec(), b"BDAT 5000000 LAST\r\n".to_vec(),
            ]),
        ], 0..60),
        is_lmtp in proptest::bool::ANY,
    ) {
        let mut play = Play::new(Setting { is_lmtp, ..setting() });
        for piece in &pieces {
            play.send(piece);
            if matches!(play.session.state, State::Tls) {
                play.input(Input::Secured);
            }
        }
        for envelope in &play.stored {
            proptest::prop_assert!(!envelope.to.is_empty());
            let text = String::from_utf8_lossy(&envelope.message).replace("\r\n", "");
            proptest::prop_assert!(!text.contains(['\r', '\n', '\0']));
        }
        proptest::prop_assert!(play.said.split("\r\n").all(|line| !line.contains(['\r', '\n'])));
    }
}
