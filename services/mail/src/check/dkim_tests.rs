//! Signatures of the RFCs and of our own making, changed in all ways, with keys in a zone in memory.

use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair};

use super::super::dns::zone::Zone;
use super::*;
use crate::letter::split;

const NOW: u64 = 1_795_698_972;

/// RFC 8463, appendix A.
const SIGNED: &str = "DKIM-Signature: v=1; a=ed25519-sha256; c=relaxed/relaxed;
 d=football.example.com; i=@football.example.com;
 q=dns/txt; s=brisbane; t=1528637909; h=from : to :
 subject : date : message-id : from : subject : date;
 bh=2jUSOH9NhtVGCQWNr9BrIAPreKQjO6Sn7XIkfJVOzv8=;
 b=/gCrinpcQOoIfuHNQIbq4pgh9kyIK3AQUdt9OdqQehSwhEIug4D11Bus
 Fa3bT3FY5OsU7ZbnKELq+eXdp1Q1Dw==
DKIM-Signature: v=1; a=rsa-sha256; c=relaxed/relaxed;
 d=football.example.com; i=@football.example.com;
 q=dns/txt; s=test; t=1528637909; h=from : to : subject :
 date : message-id : from : subject : date;
 bh=2jUSOH9NhtVGCQWNr9BrIAPreKQjO6Sn7XIkfJVOzv8=;
 b=F45dVWDfMbQDGHJFlXUNB2HKfbCeLRyhDXgFpEL8GwpsRe0IeIixNTe3
 DhCVlUrSjV4BwcVcOF6+FF3Zo9Rpo1tFOeS9mPYQTnGdaSGsgeefOsk2Jz
 dA+L10TeYt9BgDfQNZtKdN1WO//KgIqXP7OdEFE4LjFYNcUxZQ4FADY+8=
From: Joe SixPack <joe@football.example.com>
To: Suzie Q <suzie@shopping.example.net>
Subject: Is dinner ready?
Date: Fri, 11 Jul 2003 21:00:37 -0700 (PDT)
Message-ID: <20030712040037.46341.5F8J@football.example.com>

Hi.

We lost the game.  Are you hungry yet?

Joe.
";
const ED25519_KEY: &str = "v=DKIM1; k=ed25519; p=11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";
const RSA_KEY: &str = "v=DKIM1; k=rsa; p=MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDkHlOQoBTzWRiGs5V6NpP3idY6Wk08a5qhdR6wy5bdOKb2jLQiY/J16JYi0Qvx/byYzCNb3W91y3FutACDfzwQ/BC/e/8uBsCR+yz1Lxj+PL6lHvqMKrM3rG4hstT5QjvHO9PzoxZyVYLzBfO2EeC3Ip3G+2kryOTIKT+l/K4w3QIDAQAB";

pub fn zone() -> Zone {
    let zone = Zone::default().txt("brisbane._domainkey.football.example.com", ED25519_KEY);
    zone.txt("test._domainkey.football.example.com", RSA_KEY)
}

async fn of(dns: &Zone, message: &str) -> Vec<Dkim> {
    let message = message.replace("\r\n", "\n").replace('\n', "\r\n").into_bytes();
    let (fields, body) = split(&message);
    check(dns, &Message { fields: &fields, body, now: NOW }).await
}

async fn ends(dns: &Zone, message: &str) -> Vec<Result<(), Bad>> {
    of(dns, message).await.into_iter().map(|one| one.is_good).collect()
}

#[tokio::test]
async fn the_message_of_the_rfc_is_good_until_somebody_changes_it() {
    let good = of(&zone(), SIGNED).await;
    let named = |at: usize| (good[at].domain.as_str(), good[at].selector.as_str(), good[at].is_good);
    assert_eq!(named(0), ("football.example.com", "brisbane", Ok(())));
    assert_eq!(named(1), ("football.example.com", "test", Ok(())));
    // Blanks at ends of lines and fields that nobody signed are no change.
    let same =
        SIGNED.replace("yet?", "yet? ").replace("lost the", "lost  the").replace("To: ", "X: y\nTO:   ") + "\n\n";
    assert_eq!(ends(&zone(), &same).await, [Ok(()), Ok(())]);
    let text = Err(Bad::Fail("the text is another one"));
    assert_eq!(ends(&zone(), &SIGNED.replace("lost", "won")).await, [text, text]);
    assert_eq!(ends(&zone(), &SIGNED.replace("\nJoe.", "\nJoe.\nP. S.")).await, [text, text]);
    let fields = Err(Bad::Fail("the fields or the key are others"));
    for (from, to) in [("dinner", "supper"), ("joe@", "eve@"), ("t=1528637909", "t=1528637908")] {
        assert_eq!(ends(&zone(), &SIGNED.replace(from, to)).await, [fields, fields], "{to}");
    }
    // From and Subject are signed twice: no second one may be put in.
    assert_eq!(ends(&zone(), &SIGNED.replace("\nTo: ", "\nFrom: eve@there\nTo: ")).await, [fields, fields]);
    // The keys of others.
    let other = Zone::default()
        .txt("brisbane._domainkey.football.example.com", RSA_KEY)
        .txt("test._domainkey.football.example.com", "v=DKIM1; p=");
    let [for_else, taken_back] =
        [Bad::PermError("the key is for something else"), Bad::PermError("the key was taken back")];
    assert_eq!(ends(&other, SIGNED).await, [Err(for_else), Err(taken_back)]);
    let none = Err(Bad::PermError("there is no key"));
    assert_eq!(ends(&Zone::default(), SIGNED).await, [none, none]);
}

/// Signs a message; `tags` may say more or others than usual.
fn signed(key: &Ed25519KeyPair, tags: &str, message: &str) -> String {
    let message = message.replace('\n', "\r\n").into_bytes();
    let (fields, body) = split(&message);
    let stands = |name: &str| tags.contains(&format!("{name}="));
    let mut said = format!("{tags}; h=From:Subject:Subject; v=1; d=sender.test; s=k");
    if !stands("a") {
        said += "; a=ed25519-sha256";
    }
    let parsed = super::tags(said.as_bytes()).unwrap();
    let (head, text) = canonicalizations(tag(&parsed, "c")).unwrap_or((Canonical::Simple, Canonical::Simple));
    let hash = ring::digest::digest(&SHA256, &canonical_body(body, text));
    let coded = |bytes: &[u8]| base64::prelude::BASE64_STANDARD.encode(bytes);
    let field = format!("DKIM-Signature: {said}; bh={}; b=", coded(hash.as_ref()));
    let names = ["from", "subject", "subject"].map(str::to_owned);
    let input = signed_input(format!("{field}\r\n").as_bytes(), &fields, &names, head);
    let signature = key.sign(ring::digest::digest(&SHA256, &input).as_ref());
    format!("{field}{}\r\n{}", coded(signature.as_ref()), String::from_utf8(message).unwrap())
}

fn pair() -> Ed25519KeyPair {
    let made = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
    Ed25519KeyPair::from_pkcs8(made.as_ref()).unwrap()
}

#[tokio::test]
async fn what_a_signature_says_of_itself_and_its_key_is_kept() {
    let key = pair();
    let p = base64::prelude::BASE64_STANDARD.encode(key.public_key().as_ref());
    let zone = |record: &str| Zone::default().txt("k._domainkey.sender.test", &record.replace('P', &p));
    let plain = "k=ed25519; p=P";
    let message = "From: Ann <ann@sender.test>\nSubject:  a\n  b\n\nwords \n\n\n";
    let perm = |why| Err(Bad::PermError(why));
    for (tags, record, expect) in [
        ("c=simple/simple", plain, Ok(())),
        ("c=relaxed/simple", plain, Ok(())),
        ("c=relaxed", plain, Ok(())),
        ("x=1795698973; t=1", plain, Ok(())),
        ("x=1795698971", plain, Err(Bad::Fail("it has ended"))),
        ("t=9; x=8", plain, perm("it ends before it begins")),
        ("x=soon", plain, perm("its time is no number")),
        ("l=8", plain, Ok(())),
        ("l=2", plain, Err(Bad::Policy("a part of the text is not signed"))),
        ("l=", plain, perm("its length is no number")),
        ("c=tight", plain, perm("its canonicalization is not known")),
        ("q=http", plain, perm("its key is elsewhere")),
        ("i=ann@sub.sender.test", plain, Ok(())),
        ("i=ann@sub.sender.test", "t=y:s; k=ed25519; p=P", perm("the key is not for names below it")),
        ("i=ann@evilsender.test", plain, perm("it speaks for somebody else")),
        ("a=rsa-sha1", plain, Err(Bad::Policy("SHA-1 is not believed"))),
        ("a=none", plain, perm("its algorithm is not known")),
        ("c=simple", "k=rsa; p=P", perm("the key is for something else")),
        ("c=simple", "s=tlsrpt; k=ed25519; p=P", perm("the key is for something else")),
        ("c=simple", "k=ed25519; h=sha1; p=P", perm("the key is for something else")),
        ("c=simple", "k=ed25519; v=DKIM1; p=P", perm("the key's version is not known")),
        ("c=simple", "k=ed25519", perm("the key is not readable")),
        ("c=simple", "k=ed25519; p=*", perm("the key is not readable")),
        ("c=simple", "nonsense", perm("the key is not readable")),
    ] {
        let text = signed(&key, tags, message);
        let message = text.as_bytes();
        let (fields, body) = split(message);
        let found = check(&zone(record), &Message { fields: &fields, body, now: NOW }).await;
        assert_eq!(found.iter().map(|one| one.is_good).collect::<Vec<_>>(), [expect], "{tags} / {record}");
    }
    // Who is not readable has not signed; and there is an end to it.
    for field in ["d=a b", "v=1; d=x.test", "v=1; v=1; d=x.test; s=k", "d=x.test; s=../k", "\u{fc}"] {
        let found = of(&zone(plain), &format!("DKIM-Signature: {field}\nFrom: a@b\n\n")).await;
        assert!(found.is_empty(), "{field}: {found:?}");
    }
    let many = "DKIM-Signature: v=1; d=x.test; s=k\n".repeat(100);
    assert_eq!(of(&zone(plain), &format!("{many}From: a@b\n\n")).await.len(), DKIM_SIGNATURES_MAX);
    let silent = "DKIM-Signature: v=1; a=rsa-sha256; d=silent.test; s=k; h=from; bh=47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=; b=AAAA; c=relaxed/relaxed\nFrom: a@b\n\n";
    assert_eq!(ends(&Zone::default(), silent).await, [Err(Bad::TempError)]);
}

#[test]
fn bodies_are_as_the_rfc_has_them() {
    // RFC 6376 3.4.5.
    let body = b" C \r\nD \t E\r\n\r\n\r\n";
    assert_eq!(canonical_body(body, Canonical::Relaxed), b" C\r\nD E\r\n");
    assert_eq!(canonical_body(body, Canonical::Simple), b" C \r\nD \t E\r\n");
    assert_eq!(canonical_body(b"", Canonical::Simple), b"\r\n");
    assert_eq!(canonical_body(b" \t\r\n\r\n", Canonical::Relaxed), b"");
    assert_eq!(canonical_body(b"a\r\n\r\nb", Canonical::Simple), b"a\r\n\r\nb\r\n");
    let mut out = Vec::new();
    for field in ["A: X\r\n", "B : Y\t\r\n\tZ  \r\n"] {
        canonical_field(field.as_bytes(), Canonical::Relaxed, &mut out);
    }
    assert_eq!(out, b"a:X\r\nb:Y Z\r\n");
    assert_eq!(without_signature(b"X: bh=b=1; b =\r\n 2\r\n 3; c=4\r\n"), b"X: bh=b=1; b =; c=4\r\n");
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_it_panic(message in "(DKIM-Signature:|From:|v=1;|a=rsa-sha256;|d=x;|s=k;|bh=|b=|h=from;|[ ;:=/+a\r\n\t\u{e9}]){0,20}", der in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..20)) {
        let message = message.into_bytes();
        let (fields, body) = split(&message);
        canonical_body(body, Canonical::Relaxed);
        for field in &fields {
            without_signature(field);
            read(field);
        }
        rsa_key(&der);
    }
}
