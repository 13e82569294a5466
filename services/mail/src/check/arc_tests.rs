//! A chain of two seals that dkimpy 1.1.8 has made, changed in all ways.

use super::super::dns::zone::Zone;
use super::*;
use crate::letter::split;

const NOW: u64 = 1_795_698_972;
const KEY: &str = "v=DKIM1; k=rsa; p=MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDXigMMU2Jghd35HX0cBNfsJUAmupmRJjobCSI8nfOeXK1Yz9CS91GcU0wud7W2qVtomo571PccuPN9RjKH32jxKCySywh4Kl//0sr4GmiESIEcrSCE0vf9X63oe+xLr6jd2iyR9R7LRku9txEQ8X5UjbGR2iG6ZKVcZDylJ8W3cwIDAQAB";
const SEALED: &str = "ARC-Seal: i=2; cv=pass; a=rsa-sha256; d=second.test; s=k; t=1795698972;
 b=aTwQZcpveF4PnwHmgqji+Ez+2kE+UTCs7gIPgAbYrqj4nsjAcG/SPm+TYsIfuHn+ATLxd
 XOfOvfHvOZCHtt+XhdMnTvPZSKBeqaS3JYEKH7tJNsWwe6WWFdr4+/dht8VCBEK03keLGN2
 HEEzyHQumPfqKugjuYATDTaiSOLeuiw=
ARC-Message-Signature: i=2; a=rsa-sha256; c=relaxed/relaxed;
 d=second.test; s=k; t=1795698972; h=from : subject : to;
 bh=cRfz6w3ZDSwdwEYBWffrJhD1g7kuHFwmQxKMZPmb2Ak=;
 b=NNWN9qIP6/U719XmmXwMUJYBFbrVl2SIADXj+byKD9j2biPuc8zu4dOHsapPbJ7esYYTJ
 +NaI4BrlFGloQ443/bm5vZka4MvWgw3aFO9WS0JIQZU9uz2gT1J2x3LK7qYTYmB7dvEqPy5
 e3S73vzlMK9cqxzLPK8wg8t3XZN2lco=
ARC-Authentication-Results: i=2; mx.second.test;
 spf=pass smtp.mailfrom=sender.test;
 arc=pass
Authentication-Results: mx.second.test; spf=pass smtp.mailfrom=sender.test; arc=pass
ARC-Seal: i=1; cv=none; a=rsa-sha256; d=first.test; s=k; t=1795698972;
 b=tc5GIkk7nSzy+iqL02IBVzBu9y1kR1v9GyjAQ5dBNwBqSkccoG/xW9SGHBdg2DmiMc7zI
 j5MTaDbVRxCdV4a2/uDrM67sqcQbMbF+HnPpbVSrHUyK1BnadwB1t7yxmuV32o8ntvCiYPQ
 wLS9EFqrNlbIxotXjOeDw+qoPfvWVzQ=
ARC-Message-Signature: i=1; a=rsa-sha256; c=relaxed/relaxed;
 d=first.test; s=k; t=1795698972; h=from : subject : to;
 bh=cRfz6w3ZDSwdwEYBWffrJhD1g7kuHFwmQxKMZPmb2Ak=;
 b=dQevq14r5GFDpY+K/p72seSK5bn69IUhg7SD0hFCYbklo22IkJOzA17WmieAEMWtCdrpJ
 /HW4JnbOMov17pvd/WgygB6FIJyArdmnrTNHRH3eMIwKk24q6Jv0jVsWnXKGZM4wm5jFLaf
 DyS54VEKocnaRuax37IL4jlBf205wcc=
ARC-Authentication-Results: i=1; mx.first.test;
 spf=pass smtp.mailfrom=sender.test;
 arc=none
Authentication-Results: mx.first.test; spf=pass smtp.mailfrom=sender.test; arc=none
From: Eve <eve@sender.test>
To: list@first.test
Subject: words
Message-ID: <1@sender.test>

Hi.

Words.
";

fn zone() -> Zone {
    Zone::default().txt("k._domainkey.first.test", KEY).txt("k._domainkey.second.test", KEY)
}

async fn of(dns: &Zone, message: &str) -> Arc {
    let message = message.replace('\n', "\r\n").into_bytes();
    let (fields, body) = split(&message);
    check(dns, &Message { fields: &fields, body, now: NOW }).await
}

/// Without the fields that begin so, with the lines that go on with them.
fn without(start: &str) -> String {
    let mut skips = false;
    let lines = SEALED.split_inclusive('\n').filter(|line| {
        skips = line.starts_with(start) || skips && line.starts_with(' ');
        !skips
    });
    lines.collect()
}

#[tokio::test]
async fn a_chain_holds_until_somebody_changes_it() {
    let pass = Arc::Pass { count: 2, domain: "second.test".into() };
    assert_eq!(of(&zone(), SEALED).await, pass);
    assert_eq!(of(&zone(), "From: a@b\n\nwords\n").await, Arc::None);
    // A field that nobody signed, and who handed it on by a name of its own.
    assert_eq!(of(&zone(), &format!("Received: x\n{SEALED}")).await, pass);
    let text = "the message is not as the last one left it";
    let seal = "a seal does not hold";
    for (from, to, why) in [
        ("Words.", "Other words.", text),
        ("Subject: words", "Subject: others", text),
        // What the first one found, and what the last one says of it.
        ("i=1; mx.first.test;\n spf=pass", "i=1; mx.first.test;\n spf=fail", seal),
        ("i=2; mx.second.test;\n spf=pass", "i=2; mx.second.test;\n spf=fail", seal),
        ("ARC-Seal: i=1; cv=none", "ARC-Seal: i=1; cv=pass", "a seal does not fit in its place"),
        ("ARC-Seal: i=2; cv=pass", "ARC-Seal: i=2; cv=none", "a seal does not fit in its place"),
        ("ARC-Seal: i=2; cv=pass", "ARC-Seal: i=2; cv=fail", "it was broken when it was sealed last"),
        ("ARC-Seal: i=2; cv=pass", "ARC-Seal: i=2; h=from; cv=pass", "a seal names fields"),
        ("ARC-Seal: i=2;", "ARC-Seal: i=1;", "a field of it is there twice"),
        ("ARC-Seal: i=2;", "ARC-Seal: i=3;", "a field of it is missing"),
        ("ARC-Seal: i=2;", "ARC-Seal: i=51;", "a field of it has no place in it"),
        ("ARC-Seal: i=2;", "ARC-Seal: i=0;", "a field of it has no place in it"),
        ("ARC-Seal: i=2;", "ARC-Seal:", "a field of it has no place in it"),
    ] {
        assert!(SEALED.contains(from), "{from}");
        assert_eq!(of(&zone(), &SEALED.replacen(from, to, 1)).await, Arc::Fail(why), "{to}");
    }
    for field in ["ARC-Seal: i=1", "ARC-Message-Signature: i=2", "ARC-Authentication-Results: i=1"] {
        assert_eq!(of(&zone(), &without(field)).await, Arc::Fail("a field of it is missing"), "{field}");
    }
    let other = Zone::default().txt("k._domainkey.second.test", KEY);
    assert_eq!(of(&other, SEALED).await, Arc::Fail(seal), "the first one has no key any more");
    let silent = SEALED.replace("d=second.test", "d=silent.test");
    assert_eq!(of(&zone(), &silent).await, Arc::Fail("a key cannot be asked for now"));
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_it_panic(message in "(ARC-Seal:|ARC-Message-Signature:|ARC-Authentication-Results:|i=1|i=2|cv=none|a=rsa-sha256|d=x|s=k|b=|[ ;=\r\n\t\u{e9}]){0,30}") {
        let message = message.into_bytes();
        let (fields, _) = split(&message);
        if let Ok(sets) = chain(&fields) {
            sealed(&sets);
        }
    }
}
