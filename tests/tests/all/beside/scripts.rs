//! A script that was at work when its node ended, through the real program. What it leaves behind is written here: no script is known
//! that ends a process.

use std::time::Duration;

use e2e::resp::{Resp, Word};
use e2e::{Yard, wait_for};

const SOON: Duration = Duration::from_secs(30);
const TEXT: &str = "return 7";

/// The answer, once there is one that is no matter of a moment.
fn ask(yard: &Yard, token: &str, words: &[&str]) -> Word {
    let ask = || match Resp::open(yard.at(1).resp, "bank", token)?.ask(words)? {
        Word::Error(why) if why.starts_with("BUSY") => Err(why),
        word => Ok(word),
    };
    wait_for(&format!("{words:?} is answered"), SOON, ask).0
}

#[test]
fn a_script_that_ended_its_node_twice_runs_no_more_until_it_is_released() {
    let _turn = e2e::beside();
    let mut yard = Yard::cluster(1);
    yard.apply(1, "bank.toml", "[namespace.bank]\nclass = \"linear\"\nshards = 2\n").good();
    let token = yard.namespace_token("bank");
    let seven = Word::Int(7);
    assert_eq!(ask(&yard, &token, &["EVAL", TEXT, "1", "k"]), seven);
    let Word::Bulk(sha) = ask(&yard, &token, &["SCRIPT", "LOAD", TEXT]) else { panic!("no digest") };
    for deaths in 1..=2 {
        yard.kill(1);
        std::fs::write(yard.node_dir(1).join("scripts.running"), format!("{sha} bank")).unwrap();
        yard.run(1);
        let told =
            if deaths == 1 { "a second time, and it is withheld" } else { "it is withheld here until SCRIPT RELEASE" };
        wait_for("an event tells of it", SOON, || {
            let events = yard.status(1)?["events"].to_string();
            if events.contains(told) && events.contains(&sha) { Ok(()) } else { Err(events) }
        });
        let answer = ask(&yard, &token, &["EVAL", TEXT, "1", "k"]);
        match deaths {
            1 => assert_eq!(answer, seven, "once may be chance"),
            _ => assert!(matches!(&answer, Word::Error(why) if why.starts_with("ERR Script withheld: ")), "{answer:?}"),
        }
    }
    // It is so after a restart that has nothing to do with it, and other scripts run.
    yard.kill(1);
    yard.run(1);
    let answer = ask(&yard, &token, &["EVALSHA", &sha, "1", "k"]);
    assert!(matches!(&answer, Word::Error(why) if why.contains("SCRIPT RELEASE lets it run again")), "{answer:?}");
    assert_eq!(ask(&yard, &token, &["EVAL", "return 8", "1", "k"]), Word::Int(8));
    assert_eq!(ask(&yard, &token, &["SCRIPT", "WITHHELD"]), Word::List(vec![Word::Bulk(sha.clone())]));
    assert_eq!(ask(&yard, &token, &["SCRIPT", "RELEASE", &sha]), Word::Int(1));
    assert_eq!(ask(&yard, &token, &["EVALSHA", &sha, "1", "k"]), seven);
    assert_eq!(ask(&yard, &token, &["SCRIPT", "WITHHELD"]), Word::List(Vec::new()));
}
